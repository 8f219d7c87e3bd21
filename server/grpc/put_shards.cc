#include "server/grpc/put_shards.h"

#include <grpcpp/impl/codegen/proto_utils.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "server/grpc/request_target.h"

namespace quarry::server {
namespace {

using Outcome = v1::PutResponse::Outcome;

// PutRequest.data's tag: field 15, length-delimited.
constexpr uint8_t kDataTag = 15 << 3 | 2;
// A tag of one byte, a length of at most five.
constexpr size_t kMaxDataHeadBytes = 6;

// Where the bytes of a message that is nothing but `data` begin, and how many they are.
// False: it is another message.
bool IsData(const std::vector<grpc::Slice>& slices, size_t message_bytes, size_t* begin, size_t* bytes) {
  uint8_t head[kMaxDataHeadBytes];
  size_t known = 0;
  for (const grpc::Slice& slice : slices) {
    const size_t taken = std::min(slice.size(), sizeof head - known);
    std::memcpy(head + known, slice.begin(), taken);
    known += taken;
  }
  if (known == 0 || head[0] != kDataTag) return false;
  uint64_t length = 0;
  for (size_t i = 1; i < known; ++i) {
    length |= uint64_t{head[i] & 0x7fu} << (7 * (i - 1));
    if ((head[i] & 0x80) != 0) continue;
    *begin = i + 1;
    *bytes = length;
    return *begin + length == message_bytes;
  }
  return false;
}

}  // namespace

PutShards::PutShards(CacheService* service, Quota* bytes) : service_(service), bytes_(bytes) {}

PutShards::~PutShards() { DropShard(RefusalReason::kCancelled); }

absl::Status PutShards::Take(grpc::ByteBuffer* message) {
  slices_.clear();
  if (!message->Dump(&slices_).ok()) return absl::InternalError("a message cannot be read");
  size_t begin = 0;
  size_t bytes = 0;
  if (IsData(slices_, message->Length(), &begin, &bytes)) return TakeBytes(slices_, begin, bytes);
  v1::PutRequest request;
  if (!grpc::SerializationTraits<v1::PutRequest>::Deserialize(message, &request).ok()) {
    return absl::InvalidArgumentError("part: the message is no PutRequest");
  }
  switch (request.part_case()) {
    case v1::PutRequest::kHeader:
      return HandleHeader(request.header());
    case v1::PutRequest::kShard:
      return BeginShard(std::move(*request.mutable_shard()));
    case v1::PutRequest::kData: {
      const std::vector<grpc::Slice> whole = {grpc::Slice(request.data().data(), request.data().size())};
      return TakeBytes(whole, 0, request.data().size());
    }
    case v1::PutRequest::PART_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("part: neither header, shard nor data");
}

absl::Status PutShards::HandleHeader(const v1::PutHeader& header) {
  if (ns_ != nullptr) return absl::InvalidArgumentError("header: there was one before");
  const absl::StatusOr<const Namespace*> ns = NamespaceOf(*service_, header);
  if (!ns.ok()) return ns.status();
  ns_ = *ns;
  retain_ms_ = header.retain_ms();
  no_ssd_ = header.no_ssd();
  no_store_ = header.no_store();
  return absl::OkStatus();
}

absl::Status PutShards::CheckShard(const v1::PutShard& message) const {
  if (ns_ == nullptr) return absl::InvalidArgumentError("shard: a header must come first");
  if (shard_open_) {
    return absl::InvalidArgumentError(absl::StrCat("shard: the one before it lacks ",
                                                   shard_.message.bytes() - shard_.received, " of its ",
                                                   shard_.message.bytes(), " bytes"));
  }
  const uint32_t max_items = service_->limits().max_items;
  if (static_cast<uint32_t>(response_.outcomes_size()) == max_items) {
    return absl::InvalidArgumentError(absl::StrCat("shard: more than ", max_items, " in one put"));
  }
  const uint32_t hash_bytes = ns_->spec.hash_bytes;
  if (message.hash().size() != hash_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("shard.hash: ", message.hash().size(), " bytes, the namespace's hash_bytes is ", hash_bytes));
  }
  if (!message.parent().empty() && message.parent().size() != hash_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("shard.parent: ", message.parent().size(), " bytes, must be 0 or ", hash_bytes));
  }
  absl::Status status = service_->CheckPayloadBytes(*ns_, "shard", message.group(), message.bytes());
  if (status.ok()) status = service_->CheckShard(*ns_, "shard", message.group(), message.shard());
  if (!status.ok()) return status;
  const auto sums = static_cast<size_t>(message.chunk_sums_size());
  if (sums != 0 && sums != ChunkCount(message.bytes())) {
    return absl::InvalidArgumentError(
        absl::StrCat("shard.chunk_sums: ", sums, ", must be 0 or ", ChunkCount(message.bytes())));
  }
  return absl::OkStatus();
}

absl::Status PutShards::BeginShard(v1::PutShard&& message) {
  if (absl::Status status = CheckShard(message); !status.ok()) return status;
  shard_open_ = true;
  shard_.message = std::move(message);
  shard_.begin_ns = Clock::Real()->NowNs();
  shard_.received = 0;
  shard_.reserved = 0;
  shard_.outcome = response_.add_outcomes();
  const v1::PutShard& shard = shard_.message;
  if (no_store_) {
    shard_.outcome->set_kind(Outcome::KIND_REFUSED);
    shard_.outcome->set_reason(v1::REFUSAL_REASON_OPTED_OUT);
    return absl::OkStatus();
  }
  if (!bytes_->Take(shard.bytes())) {
    shard_.outcome->set_kind(Outcome::KIND_REFUSED);
    shard_.outcome->set_reason(v1::REFUSAL_REASON_TOO_MANY_IN_FLIGHT);
    return absl::OkStatus();
  }
  shard_.reserved = shard.bytes();
  OfferResult offer = service_->store().Offer(*ns_, {shard.group(), shard.shard(), shard.hash(), shard.parent(),
                                                     shard.depth(), shard.bytes(), retain_ms_, no_ssd_});
  shard_.ticket = std::move(offer.ticket);
  if (shard_.ticket) {
    shard_.summer.Start(kChunkBytes, shard_.ticket.slot().header()->sums);
  } else {
    shard_.outcome->set_kind(static_cast<Outcome::Kind>(offer.outcome));
    shard_.outcome->set_reason(static_cast<v1::RefusalReason>(offer.reason));
  }
  return absl::OkStatus();
}

absl::Status PutShards::TakeBytes(const std::vector<grpc::Slice>& slices, size_t skip, size_t bytes) {
  if (!shard_open_) return absl::InvalidArgumentError("data: no shard is under way");
  const uint64_t left = shard_.message.bytes() - shard_.received;
  if (bytes > left) {
    return absl::InvalidArgumentError(
        absl::StrCat("data: ", bytes, " bytes, but the shard under way lacks only ", left));
  }
  for (const grpc::Slice& slice : slices) {
    const size_t skipped = std::min(skip, slice.size());
    skip -= skipped;
    const size_t taken = slice.size() - skipped;
    if (shard_.ticket && taken != 0) {
      std::byte* to = shard_.ticket.slot().payload() + shard_.received;
      std::memcpy(to, slice.begin() + skipped, taken);
      shard_.summer.Update(to, taken);
    }
    shard_.received += taken;
  }
  if (shard_.received == shard_.message.bytes()) EndShard();
  return absl::OkStatus();
}

void PutShards::EndShard() {
  const v1::PutShard& shard = shard_.message;
  if (!shard_.ticket) return DropShard(RefusalReason::kNone);
  SlotHeader* header = shard_.ticket.slot().header();
  const size_t sums = shard_.summer.Finish();
  if (shard.chunk_sums_size() != 0 && !std::equal(header->sums, header->sums + sums, shard.chunk_sums().begin())) {
    return DropShard(RefusalReason::kChecksum);
  }
  const uint64_t seed = IdentitySeed(ns_->id, shard.group(), shard.shard(), shard.hash());
  header->payload_bytes = shard.bytes();
  header->root = RootSum(seed, shard.bytes(), absl::MakeConstSpan(header->sums, sums));
  shard_.ticket.Publish();
  shard_.outcome->set_kind(Outcome::KIND_STORED);
  CountEnd(transport::TransferStatus::kOk);
  DropShard(RefusalReason::kNone);
}

void PutShards::CountEnd(transport::TransferStatus status) {
  service_->metrics()
      .transfers_of(transport::Transfer::Kind::kRead, Via::kGrpc)
      .Ended(status, shard_.message.bytes(), Clock::Real()->NowNs() - shard_.begin_ns);
}

// Whatever became of it, it is over.
void PutShards::DropShard(RefusalReason reason) {
  if (!shard_open_) return;
  shard_open_ = false;
  if (reason != RefusalReason::kNone && shard_.ticket) {
    shard_.ticket.Refuse(reason);
    CountEnd(reason == RefusalReason::kChecksum ? transport::TransferStatus::kChecksum
                                                : transport::TransferStatus::kCancelled);
    shard_.outcome->set_kind(Outcome::KIND_REFUSED);
    shard_.outcome->set_reason(static_cast<v1::RefusalReason>(reason));
  }
  bytes_->Give(std::exchange(shard_.reserved, 0));
}

absl::Status PutShards::CheckWhole() const {
  if (ns_ == nullptr) return absl::InvalidArgumentError("header: missing");
  if (!shard_open_) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("data: the last shard lacks ",
                                                 shard_.message.bytes() - shard_.received, " of its ",
                                                 shard_.message.bytes(), " bytes"));
}

}  // namespace quarry::server
