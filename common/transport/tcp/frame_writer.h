// Writes a data stream: frames of items in order, straight from where their bytes lie, as
// many as fit one sendmsg.
#ifndef QUARRY_COMMON_TRANSPORT_TCP_FRAME_WRITER_H_
#define QUARRY_COMMON_TRANSPORT_TCP_FRAME_WRITER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/transport/tcp/frame.h"

namespace quarry::transport::tcp {

// An item on its way out. Owned by the writer from Push to Done.
class Outgoing {
 public:
  virtual ~Outgoing() = default;
  // Called once, right before the first byte is sent: what precedes the payload.
  virtual ItemMeta Meta() = 0;
  // Called once; the source is not read again. The object is destroyed right after.
  virtual void Done(TransferStatus status) = 0;

  ItemId id;
  absl::Span<const Segment> segments;
  size_t bytes = 0;         // TotalBytes(segments)
  int64_t deadline_ns = 0;  // Clock::Real(); 0: none. No frame is begun after it
};

class FrameWriter {
 public:
  // Everything left is Done with kClosed.
  ~FrameWriter();

  void Push(std::unique_ptr<Outgoing> item);
  // A frame without data; goes before the items that have not begun.
  void PushSignal(FrameType type, ItemId id);
  // Ends the request's items: Done with kCancelled before it returns. Of a frame that is
  // partly sent the rest goes out from a copy, so that the stream stays in step.
  void Cancel(uint64_t request);

  // Sends until all is sent, the socket is full, or about `budget` bytes have gone.
  absl::Status Write(int fd, size_t budget);
  // Items and signals that have not been sent in full.
  size_t queued() const { return items_.size() + signals_.size() / kHeaderBytes; }
  bool idle() const { return iov_first_ == iov_count_ && items_.empty() && signals_.empty(); }

 private:
  static constexpr size_t kBatchBytes = kMaxFramePayload;
  static constexpr size_t kMaxFrames = 32;
  static constexpr size_t kMaxIov = 512;

  struct Frame {
    std::array<std::byte, kHeaderBytes> header;
    std::string meta;
  };
  // An item with payload in the batch, and which iovecs point to it.
  struct BatchItem {
    Outgoing* item = nullptr;         // nullptr: cancelled, its iovecs point to a copy
    std::unique_ptr<Outgoing> owned;  // its last byte is in the batch
    size_t iov_begin = 0;
    size_t iov_end = 0;
  };

  void BuildBatch();
  // False: the item has ended without a frame, or no more iovecs fit.
  bool AppendFrame(Outgoing& item);
  void CopyUnsent(const BatchItem& entry);
  void FinishBatch();

  std::deque<std::unique_ptr<Outgoing>> items_;  // front: being sent
  size_t offset_ = 0;                            // of the front item: bytes put in batches
  SegmentCursor cursor_;                         // into the front item
  std::string signals_;                          // encoded, not yet in a batch

  // The batch: what the next sendmsg calls send.
  std::array<iovec, kMaxIov> iov_;
  size_t iov_count_ = 0;
  size_t iov_first_ = 0;  // those before have been sent
  size_t batch_bytes_ = 0;
  std::vector<BatchItem> batch_items_;
  std::array<Frame, kMaxFrames> frames_;
  size_t frame_count_ = 0;
  std::string batch_signals_;
  std::vector<std::unique_ptr<std::byte[]>> copies_;
};

}  // namespace quarry::transport::tcp

#endif  // QUARRY_COMMON_TRANSPORT_TCP_FRAME_WRITER_H_
