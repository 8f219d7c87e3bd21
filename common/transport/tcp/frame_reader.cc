#include "common/transport/tcp/frame_reader.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/net/socket.h"

namespace quarry::transport::tcp {
namespace {

// Room for the metadata, the pieces of a frame in small segments, and the next header.
constexpr size_t kMaxIov = 256;
// What is thrown away at a time.
constexpr size_t kScratchBytes = 256 << 10;

}  // namespace

absl::Status FrameReader::Read(int fd, size_t budget) {
  size_t total = 0;
  while (total < budget) {
    iovec iov[kMaxIov];
    size_t wanted = 0;
    const size_t count = BuildIov(iov, &wanted);
    const ssize_t got = readv(fd, iov, static_cast<int>(count));
    if (got == 0) return absl::UnavailableError("the peer closed the data stream");
    if (got < 0) {
      if (errno == EAGAIN) return absl::OkStatus();
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, "readv");
    }
    if (absl::Status status = Consume(static_cast<size_t>(got)); !status.ok()) return status;
    total += static_cast<size_t>(got);
    // Less than asked for means that the socket is empty: do not ask again to hear so.
    if (static_cast<size_t>(got) < wanted) return absl::OkStatus();
  }
  return absl::OkStatus();
}

size_t FrameReader::BuildIov(iovec* iov, size_t* wanted) {
  size_t count = 0;
  *wanted = 0;
  const auto add = [&](void* base, size_t bytes) {
    iov[count++] = {base, bytes};
    *wanted += bytes;
  };
  if (state_ == State::kHeader) {
    add(header_bytes_.data() + header_got_, kHeaderBytes - header_got_);
    return count;
  }
  if (state_ == State::kMeta) add(meta_bytes_.data() + meta_got_, header_.meta_bytes - meta_got_);
  const size_t left = header_.payload_bytes - payload_got_;
  if (discard_) {
    if (scratch_ == nullptr) scratch_ = std::make_unique<std::byte[]>(kScratchBytes);
    add(scratch_.get(), std::min(left, kScratchBytes));
    if (left > kScratchBytes) return count;
  } else {
    size_t covered = 0;
    count += cursor_.Peek(iov + count, kMaxIov - count - 1, left, &covered);
    *wanted += covered;
    if (covered < left) return count;  // many small segments: the rest in the next call
  }
  add(header_bytes_.data(), kHeaderBytes);
  return count;
}

absl::Status FrameReader::Consume(size_t bytes) {
  while (true) {
    switch (state_) {
      case State::kHeader: {
        const size_t part = std::min(bytes, kHeaderBytes - header_got_);
        header_got_ += part;
        bytes -= part;
        if (header_got_ < kHeaderBytes) return absl::OkStatus();
        header_got_ = 0;
        if (absl::Status status = OnHeader(); !status.ok()) return status;
        break;
      }
      case State::kMeta: {
        const size_t part = std::min(bytes, header_.meta_bytes - meta_got_);
        meta_got_ += part;
        bytes -= part;
        if (meta_got_ < header_.meta_bytes) return absl::OkStatus();
        if (absl::Status status = OnMeta(); !status.ok()) return status;
        state_ = State::kPayload;
        break;
      }
      case State::kPayload: {
        const size_t part = std::min<size_t>(bytes, header_.payload_bytes - payload_got_);
        payload_got_ += part;
        item_got_ += part;
        bytes -= part;
        if (part > 0) OnPayload(part);
        if (payload_got_ < header_.payload_bytes) return absl::OkStatus();
        state_ = State::kHeader;
        if (in_item_ && item_got_ == meta_.range.bytes) EndItem();
        break;
      }
    }
    if (bytes == 0) return absl::OkStatus();
  }
}

absl::Status FrameReader::OnHeader() {
  if (absl::Status status = DecodeHeader(header_bytes_.data(), &header_); !status.ok()) return status;
  switch (header_.type) {
    case FrameType::kData:
      return OnFrameBegin();
    case FrameType::kPull:
      return sink_->OnPull(header_.id);
    case FrameType::kAbort:
      if (in_item_ && item_ == header_.id) {
        in_item_ = false;
        landing_.owner.reset();
      }
      return sink_->OnAbort(header_.id);
  }
  return absl::InternalError("frame type");
}

absl::Status FrameReader::OnFrameBegin() {
  payload_got_ = 0;
  meta_got_ = 0;
  if (header_.offset == 0) {
    if (in_item_) BreakItem(/*wrong_size=*/false);
    in_item_ = true;
    item_ = header_.id;
    item_got_ = 0;
    landing_ = Landing{};
    const FrameSink::Find found = sink_->FindLanding(item_, &landing_);
    if (found == FrameSink::Find::kRefuse) {
      in_item_ = false;
      return absl::InvalidArgumentError(
          absl::StrCat("request ", item_.request, " has no item ", item_.item, " to receive"));
    }
    discard_ = found == FrameSink::Find::kDiscard;
    if (!discard_) cursor_ = SegmentCursor(landing_.segments);
    // The metadata comes in one read with the payload, so this must hold before it is seen.
    if (!discard_ && header_.payload_bytes > landing_.bytes) BreakItem(/*wrong_size=*/true);
    state_ = State::kMeta;
    return absl::OkStatus();
  }
  if (!in_item_ || !(item_ == header_.id) || header_.offset != item_got_) {
    return absl::InvalidArgumentError(absl::StrCat("a frame continues request ", header_.id.request, " item ",
                                                   header_.id.item, " at offset ", header_.offset,
                                                   ", which is not what is being received"));
  }
  if (header_.payload_bytes > meta_.range.bytes - item_got_) {
    return absl::InvalidArgumentError("a frame goes beyond the end of its item");
  }
  state_ = State::kPayload;
  return absl::OkStatus();
}

absl::Status FrameReader::OnMeta() {
  if (absl::Status status =
          DecodeMeta(absl::MakeConstSpan(meta_bytes_.data(), header_.meta_bytes), sums_.data(), &meta_);
      !status.ok()) {
    return status;
  }
  if (header_.payload_bytes > meta_.range.bytes) {
    return absl::InvalidArgumentError("a frame goes beyond the end of its item");
  }
  if (discard_) return absl::OkStatus();
  const bool whole = meta_.range.bytes == meta_.range.payload_bytes;
  if (meta_.range.bytes != landing_.bytes || (landing_.sums != nullptr && !whole)) {
    BreakItem(/*wrong_size=*/true);
    return absl::OkStatus();
  }
  if (landing_.checksum) {
    verifier_.Start(landing_.segments, meta_.range, meta_.sums, meta_.edge_sums, landing_.sums);
  }
  return absl::OkStatus();
}

void FrameReader::OnPayload(size_t bytes) {
  if (discard_) return;
  cursor_.Advance(bytes);
  if (landing_.checksum) verifier_.Advance(item_got_);
}

void FrameReader::EndItem() {
  in_item_ = false;
  if (discard_) return;
  const std::shared_ptr<void> keep = std::move(landing_.owner);
  sink_->OnReceived(item_, meta_, !landing_.checksum || verifier_.intact());
}

void FrameReader::BreakItem(bool wrong_size) {
  if (!discard_) {
    discard_ = true;
    landing_.owner.reset();
    sink_->OnBroken(item_, wrong_size);
  }
}

void FrameReader::Abandon(uint64_t request) {
  if (in_item_ && item_.request == request && !discard_) {
    discard_ = true;
    landing_.owner.reset();
  }
}

}  // namespace quarry::transport::tcp
