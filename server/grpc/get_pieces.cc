#include "server/grpc/get_pieces.h"

#include <grpcpp/impl/codegen/proto_utils.h>

#include <algorithm>
#include <iterator>
#include <protozero/pbf_writer.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checksum.h"
#include "common/clock.h"

namespace quarry::server {
namespace {

// GetResponse's field numbers.
constexpr protozero::pbf_tag_type kItem = 1, kMiss = 2, kOffset = 3, kPayloadBytes = 4, kChunkSums = 5, kData = 15;

grpc::Slice SliceOf(const std::string& bytes) { return grpc::Slice(bytes.data(), bytes.size()); }

// Bytes of a slot, which is held until gRPC has sent them.
grpc::Slice SliceOf(const SlotRef& slot, uint64_t offset, uint64_t bytes) {
  const auto release = [](void* held) { delete static_cast<SlotRef*>(held); };
  return grpc::Slice(slot.payload() + offset, bytes, release, new SlotRef(slot));
}

}  // namespace

absl::Status GetPieces::Begin(const grpc::ByteBuffer& request) {
  grpc::ByteBuffer copy = request;  // shares the bytes
  if (!grpc::SerializationTraits<v1::GetRequest>::Deserialize(&copy, &request_).ok()) {
    return absl::InvalidArgumentError("request: it is no GetRequest");
  }
  absl::StatusOr<BlockTarget> target = BlocksOf(*service_, request_);
  if (!target.ok()) return target.status();
  target_ = *std::move(target);
  if (absl::Status status = service_->CheckShard(*target_.ns, {}, target_.group, request_.shard()); !status.ok()) {
    return status;
  }
  if (request_.lease().empty()) return absl::OkStatus();
  return service_->store().CheckLease(*target_.ns, request_.lease());
}

size_t GetPieces::Load(LoadDone done) {
  const size_t left = target_.hashes().size() - item_;
  const size_t count = std::clamp<size_t>(kLoadBytes / std::max<uint64_t>(cold_bytes_, 1), 1, left);
  service_->store().Load(*target_.ns, target_.group, request_.shard(), target_.hashes().subspan(item_, count),
                         std::move(done));
  return count;
}

void GetPieces::Loaded(std::vector<ReadResult> reads) {
  loaded_.assign(std::make_move_iterator(reads.begin()), std::make_move_iterator(reads.end()));
}

void GetPieces::OpenItem(SlotRef slot) {
  slot_ = std::move(slot);
  item_begin_ns_ = Clock::Real()->NowNs();
  const uint64_t stored = slot_.header()->payload_bytes;
  offset_ = request_.offset();
  end_ = request_.bytes() == 0 ? stored : offset_ + request_.bytes();
  if (offset_ >= stored || request_.bytes() > stored - offset_) {
    failed_ = absl::OutOfRangeError(absl::StrCat("offset: ", offset_, " and bytes ", request_.bytes(),
                                                 " are not within the ", stored, " bytes of hashes[", item_, "]"));
  }
}

GetPieces::Step GetPieces::Next(grpc::ByteBuffer* message) {
  if (item_ == target_.hashes().size()) return Step::kEnd;
  if (!slot_) {
    ReadResult read;
    if (loaded_.empty()) {
      std::vector<ReadResult> reads;
      service_->store().Read(*target_.ns, target_.group, request_.shard(), target_.hashes().subspan(item_, 1), &reads);
      read = std::move(reads[0]);
    } else {
      read = std::move(loaded_.front());
      loaded_.pop_front();
    }
    if (read.slot) {
      OpenItem(std::move(read.slot));
    } else if (read.on_ssd) {
      cold_bytes_ = read.payload_bytes;
      return Step::kLoad;
    } else if (read.miss == MissCause::kNone) {
      failed_ = absl::ResourceExhaustedError(absl::StrCat("hashes[", item_, "]: no memory to read it into"));
    } else {
      *message = Miss(read.miss);
      ++item_;
      return Step::kMessage;
    }
    if (!failed_.ok()) return Step::kEnd;
  }
  *message = Piece();
  if (offset_ == end_) {
    service_->metrics()
        .transfers_of(transport::Transfer::Kind::kWrite, Via::kGrpc)
        .Ended(transport::TransferStatus::kOk, end_ - request_.offset(), Clock::Real()->NowNs() - item_begin_ns_);
    slot_ = SlotRef();
    ++item_;
  }
  return Step::kMessage;
}

grpc::ByteBuffer GetPieces::Miss(MissCause cause) const {
  std::string head;
  protozero::pbf_writer writer(head);
  writer.add_uint32(kItem, item_);
  writer.add_enum(kMiss, static_cast<int32_t>(cause));
  const grpc::Slice slice = SliceOf(head);
  return grpc::ByteBuffer(&slice, 1);
}

grpc::ByteBuffer GetPieces::Piece() {
  const SlotHeader& header = *slot_.header();
  const uint64_t bytes = std::min(end_ - offset_, kPieceBytes);
  std::string head;
  protozero::pbf_writer writer(head);
  writer.add_uint32(kItem, item_);
  writer.add_uint64(kOffset, offset_);
  if (offset_ == request_.offset()) {
    writer.add_uint64(kPayloadBytes, header.payload_bytes);
    const uint64_t* sums = header.sums;
    writer.add_packed_fixed64(kChunkSums, sums + offset_ / kChunkBytes, sums + ChunkCount(end_));
  }
  // The payload itself follows in a slice of its own.
  constexpr uint32_t kLengthDelimited = 2;
  protozero::add_varint_to_buffer(&head, kData << 3 | kLengthDelimited);
  protozero::add_varint_to_buffer(&head, bytes);
  const grpc::Slice slices[] = {SliceOf(head), SliceOf(slot_, offset_, bytes)};
  offset_ += bytes;
  sent_bytes_ += bytes;
  return grpc::ByteBuffer(slices, 2);
}

}  // namespace quarry::server
