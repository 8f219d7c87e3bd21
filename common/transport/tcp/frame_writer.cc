#include "common/transport/tcp/frame_writer.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/clock.h"
#include "common/net/socket.h"

namespace quarry::transport::tcp {
namespace {

bool Expired(const Outgoing& item) { return item.deadline_ns != 0 && Clock::Real()->NowNs() > item.deadline_ns; }

}  // namespace

FrameWriter::~FrameWriter() {
  for (BatchItem& entry : batch_items_) {
    if (entry.owned != nullptr) entry.owned->Done(TransferStatus::kClosed);
  }
  for (auto& item : items_) item->Done(TransferStatus::kClosed);
}

void FrameWriter::Push(std::unique_ptr<Outgoing> item) { items_.push_back(std::move(item)); }

void FrameWriter::PushSignal(FrameType type, ItemId id) {
  std::byte header[kHeaderBytes];
  EncodeHeader({.type = type, .id = id}, header);
  signals_.append(reinterpret_cast<const char*>(header), kHeaderBytes);
}

void FrameWriter::Cancel(uint64_t request) {
  std::vector<std::unique_ptr<Outgoing>> ended;
  for (BatchItem& entry : batch_items_) {
    if (entry.item == nullptr || entry.item->id.request != request) continue;
    CopyUnsent(entry);
    entry.item = nullptr;
    if (entry.owned != nullptr) ended.push_back(std::move(entry.owned));
  }
  if (!items_.empty() && items_.front()->id.request == request) offset_ = 0;
  for (auto& item : items_) {
    if (item->id.request == request) ended.push_back(std::move(item));
  }
  std::erase(items_, nullptr);
  for (auto& item : ended) item->Done(TransferStatus::kCancelled);
}

void FrameWriter::CopyUnsent(const BatchItem& entry) {
  const size_t begin = std::max(entry.iov_begin, iov_first_);
  size_t bytes = 0;
  for (size_t i = begin; i < entry.iov_end; ++i) bytes += iov_[i].iov_len;
  if (bytes == 0) return;
  auto copy = std::make_unique<std::byte[]>(bytes);
  std::byte* to = copy.get();
  for (size_t i = begin; i < entry.iov_end; ++i) {
    std::memcpy(to, iov_[i].iov_base, iov_[i].iov_len);
    iov_[i].iov_base = to;
    to += iov_[i].iov_len;
  }
  copies_.push_back(std::move(copy));
}

void FrameWriter::BuildBatch() {
  if (!signals_.empty()) {
    batch_signals_.swap(signals_);
    iov_[iov_count_++] = {batch_signals_.data(), batch_signals_.size()};
    batch_bytes_ += batch_signals_.size();
  }
  while (!items_.empty() && batch_bytes_ < kBatchBytes && frame_count_ < kMaxFrames) {
    Outgoing& item = *items_.front();
    if (Expired(item)) {
      const std::unique_ptr<Outgoing> ended = std::move(items_.front());
      items_.pop_front();
      offset_ = 0;
      // Frames of it in this batch still point to its memory.
      for (BatchItem& entry : batch_items_) {
        if (entry.item != ended.get()) continue;
        CopyUnsent(entry);
        entry.item = nullptr;
      }
      ended->Done(TransferStatus::kCancelled);
      continue;
    }
    if (!AppendFrame(item)) return;
    if (offset_ == item.bytes) {
      batch_items_.back().owned = std::move(items_.front());
      items_.pop_front();
      offset_ = 0;
    }
  }
}

bool FrameWriter::AppendFrame(Outgoing& item) {
  // Header, metadata and at least one piece.
  if (iov_count_ + 3 > kMaxIov) return false;
  Frame& frame = frames_[frame_count_];
  frame.meta.clear();
  if (offset_ == 0) {
    EncodeMeta(item.Meta(), &frame.meta);
    cursor_ = SegmentCursor(item.segments);
  }
  iov_[iov_count_++] = {frame.header.data(), kHeaderBytes};
  if (!frame.meta.empty()) iov_[iov_count_++] = {frame.meta.data(), frame.meta.size()};

  BatchItem entry{.item = &item, .owned = nullptr, .iov_begin = iov_count_, .iov_end = 0};
  size_t payload = 0;
  const size_t pieces = cursor_.Peek(iov_.data() + entry.iov_begin, kMaxIov - entry.iov_begin,
                                     std::min(kMaxFramePayload, item.bytes - offset_), &payload);
  cursor_.Advance(payload);
  entry.iov_end = entry.iov_begin + pieces;
  iov_count_ = entry.iov_end;

  EncodeHeader({.type = FrameType::kData,
                .id = item.id,
                .offset = offset_,
                .payload_bytes = static_cast<uint32_t>(payload),
                .meta_bytes = static_cast<uint32_t>(frame.meta.size())},
               frame.header.data());
  offset_ += payload;
  batch_bytes_ += kHeaderBytes + frame.meta.size() + payload;
  batch_items_.push_back(std::move(entry));
  ++frame_count_;
  return true;
}

void FrameWriter::FinishBatch() {
  std::vector<BatchItem> sent = std::exchange(batch_items_, {});
  iov_count_ = 0;
  iov_first_ = 0;
  batch_bytes_ = 0;
  frame_count_ = 0;
  batch_signals_.clear();
  copies_.clear();
  for (BatchItem& entry : sent) {
    if (entry.owned != nullptr) entry.owned->Done(TransferStatus::kOk);
  }
}

absl::Status FrameWriter::Write(int fd, size_t budget) {
  size_t total = 0;
  while (total < budget) {
    if (iov_first_ == iov_count_) {
      BuildBatch();
      if (iov_count_ == 0) return absl::OkStatus();
    }
    msghdr message{};
    message.msg_iov = iov_.data() + iov_first_;
    message.msg_iovlen = iov_count_ - iov_first_;
    const ssize_t result = sendmsg(fd, &message, MSG_NOSIGNAL);
    if (result < 0) {
      if (errno == EAGAIN) return absl::OkStatus();
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, "sendmsg");
    }
    auto sent = static_cast<size_t>(result);
    total += sent;
    while (sent > 0) {
      iovec& front = iov_[iov_first_];
      const size_t part = std::min(sent, front.iov_len);
      front.iov_base = static_cast<std::byte*>(front.iov_base) + part;
      front.iov_len -= part;
      sent -= part;
      if (front.iov_len == 0) ++iov_first_;
    }
    if (iov_first_ == iov_count_) {
      FinishBatch();
    } else {
      return absl::OkStatus();  // the socket is full: do not ask again to hear so
    }
  }
  return absl::OkStatus();
}

}  // namespace quarry::transport::tcp
