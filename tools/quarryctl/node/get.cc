// quarryctl get: a shard's payload, checked, to a file or standard output.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/checksum.h"
#include "tools/quarryctl/flags.h"
#include "tools/quarryctl/node/commands.h"
#include "tools/quarryctl/node/connection.h"
#include "tools/quarryctl/node/hashes.h"
#include "tools/quarryctl/node/names.h"

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

class GetCommand : public NodeCommand {
 public:
  std::string name() const override { return "get"; }
  std::string help() const override { return "Fetches the payload of a block's shard"; }
  void AddFlags(CLI::App* app) override {
    AddNamespace(app, &ns_);
    AddHash(app, "HASH", &hash_, "Hash of the block")->required();
    AddFile(app, "--output,-o", &output_, "File to write; - is standard output")->required();
    AddGroup(app, &group_);
    AddShard(app, &shard_);
  }

 protected:
  absl::StatusOr<ExitCode> Ask(Connection* connection, const Context& context) override {
    const absl::StatusOr<std::string> payload = Fetch(connection);
    if (!payload.ok()) return payload.status();
    if (output_ == "-") {
      context.out.write(payload->data(), static_cast<std::streamsize>(payload->size())).flush();
      return context.out ? absl::StatusOr<ExitCode>(ExitCode::kOk)
                         : absl::UnknownError("standard output cannot be written");
    }
    std::ofstream file(output_, std::ios::binary | std::ios::trunc);
    file.write(payload->data(), static_cast<std::streamsize>(payload->size()));
    file.close();
    if (!file) return absl::InvalidArgumentError(absl::StrCat("--output: ", output_, ": ", std::strerror(errno)));
    Report report;
    report.Add("file", "file", Value::Text(output_));
    report.Add("bytes", "bytes", Value::Count(payload->size()));
    context.Print(report);
    return ExitCode::kOk;
  }

 private:
  absl::StatusOr<std::string> Fetch(Connection* connection) const {
    auto request = connection->About<v1::GetRequest>(ns_);
    request.set_group(static_cast<uint32_t>(group_));
    request.set_shard(static_cast<uint32_t>(shard_));
    request.add_hashes(hash_);
    grpc::ClientContext call;
    connection->SetDeadline(&call);
    const auto reader = connection->cache().Get(&call, request);
    std::string payload;
    std::vector<uint64_t> sums;
    uint64_t bytes = 0;
    v1::MissCause miss = v1::MISS_CAUSE_UNSPECIFIED;
    for (v1::GetResponse piece; reader->Read(&piece);) {
      if (piece.payload_bytes() != 0) {
        bytes = piece.payload_bytes();
        sums.assign(piece.chunk_sums().begin(), piece.chunk_sums().end());
      }
      if (piece.miss() != v1::MISS_CAUSE_UNSPECIFIED) miss = piece.miss();
      payload += piece.data();
    }
    if (const grpc::Status status = reader->Finish(); !status.ok()) return connection->ToStatus(status);
    if (miss != v1::MISS_CAUSE_UNSPECIFIED) {
      return absl::NotFoundError(absl::StrCat("a miss, ", Name(miss), ": ", WhyMissing(miss)));
    }
    if (payload.size() != bytes) {
      return absl::DataLossError(absl::StrCat(payload.size(), " bytes came of a payload of ", bytes));
    }
    if (absl::Status status = CheckSums(payload, sums); !status.ok()) return status;
    return payload;
  }

  std::string ns_;
  std::string hash_;
  std::string output_;
  uint64_t group_ = 0;
  uint64_t shard_ = 0;
};

}  // namespace

std::unique_ptr<Command> NewGetCommand() { return std::make_unique<GetCommand>(); }

}  // namespace quarry::ctl
