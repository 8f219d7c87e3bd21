#include "tools/quarryctl/node/get_shards.h"

#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checksum.h"
#include "quarry/model_spec.h"

namespace quarry::ctl {
namespace {

absl::Status CheckSums(const std::string& payload, const std::vector<uint64_t>& sums) {
  if (sums.size() != ChunkCount(payload.size())) {
    return absl::DataLossError(
        absl::StrCat(sums.size(), " checksums came for ", payload.size(), " bytes, not ", ChunkCount(payload.size())));
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    const std::string_view chunk = std::string_view(payload).substr(i * kChunkBytes, kChunkBytes);
    if (ChunkSum(chunk.data(), chunk.size()) != sums[i]) {
      return absl::DataLossError(absl::StrCat("the checksum of bytes ", i * kChunkBytes, " to ",
                                              i * kChunkBytes + chunk.size(), " does not hold"));
    }
  }
  return absl::OkStatus();
}

// Puts the pieces of one payload after the other together.
class Assembly {
 public:
  explicit Assembly(const std::function<absl::Status(GotShard*)>& take) : take_(take) {}

  absl::Status Add(v1::GetResponse* piece) {
    if (piece->item() != shard_.item || piece->offset() != shard_.payload.size()) {
      return absl::DataLossError(absl::StrCat("a piece came out of order: of item ", piece->item(), ", not ",
                                              shard_.item, ", or not from byte ", shard_.payload.size()));
    }
    if (piece->miss() != v1::MISS_CAUSE_UNSPECIFIED) {
      shard_.miss = piece->miss();
      return Take();
    }
    if (shard_.payload.empty()) {
      bytes_ = piece->payload_bytes();
      sums_.assign(piece->chunk_sums().begin(), piece->chunk_sums().end());
    }
    shard_.payload += piece->data();
    if (piece->data().empty() || bytes_ > kMaxShardBytes || shard_.payload.size() > bytes_) {
      return absl::DataLossError(absl::StrCat(shard_.payload.size(), " bytes came of a payload of ", bytes_));
    }
    if (shard_.payload.size() < bytes_) return absl::OkStatus();
    if (absl::Status status = CheckSums(shard_.payload, sums_); !status.ok()) return status;
    return Take();
  }

  uint32_t taken() const { return shard_.item; }

 private:
  absl::Status Take() {
    absl::Status status = take_(&shard_);
    shard_.miss = v1::MISS_CAUSE_UNSPECIFIED;
    shard_.payload.clear();
    ++shard_.item;
    return status;
  }

  const std::function<absl::Status(GotShard*)>& take_;
  GotShard shard_;
  uint64_t bytes_ = 0;
  std::vector<uint64_t> sums_;
};

}  // namespace

absl::Status GetShards(Connection* connection, const v1::GetRequest& request,
                       const std::function<absl::Status(GotShard*)>& take) {
  grpc::ClientContext call;
  connection->SetDeadline(&call);
  const auto reader = connection->cache().Get(&call, request);
  Assembly assembly(take);
  absl::Status failed;
  for (v1::GetResponse piece; failed.ok() && reader->Read(&piece);) failed = assembly.Add(&piece);
  if (!failed.ok()) call.TryCancel();
  const grpc::Status status = reader->Finish();
  if (!failed.ok()) return failed;
  if (!status.ok()) return connection->ToStatus(status);
  if (assembly.taken() != static_cast<uint32_t>(request.hashes_size())) {
    return absl::DataLossError(
        absl::StrCat("the node answered for ", assembly.taken(), " of ", request.hashes_size(), " blocks"));
  }
  return absl::OkStatus();
}

}  // namespace quarry::ctl
