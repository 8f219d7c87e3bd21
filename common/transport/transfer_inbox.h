// How a stream of the server's end is given work on any thread and does it on its loop's.
#ifndef QUARRY_COMMON_TRANSPORT_TRANSFER_INBOX_H_
#define QUARRY_COMMON_TRANSPORT_TRANSFER_INBOX_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "common/net/event_loop.h"
#include "common/transport/transport.h"

namespace quarry::transport {

// A stream derives from it. What is posted keeps the stream alive, so it outlives its channel
// until its loop has closed it.
class TransferInbox : public std::enable_shared_from_this<TransferInbox> {
 public:
  explicit TransferInbox(EventLoop* loop) : loop_(loop) {}
  virtual ~TransferInbox() = default;
  TransferInbox(const TransferInbox&) = delete;
  TransferInbox& operator=(const TransferInbox&) = delete;

  // Any thread.
  void Start(std::unique_ptr<Transfer> transfer);
  void PostOpen();  // nothing, if the stream has been closed before
  void PostCancel(uint64_t request);
  void PostClose();
  // Of transfers started and not finished.
  uint64_t queued_bytes() const { return queued_bytes_.load(std::memory_order_relaxed); }

 protected:
  EventLoop* loop() const { return loop_; }
  // Any thread. Work is called once for all calls that come before it.
  void PostWork();

  // The rest on the loop's thread.
  virtual void Open() = 0;
  virtual void Work() = 0;
  virtual void Cancel(uint64_t request) = 0;
  virtual void Close() = 0;

  std::vector<std::unique_ptr<Transfer>> TakeStarted();
  // As TakeStarted; what is started from now on is finished with kClosed at once.
  std::vector<std::unique_ptr<Transfer>> CloseInbox();
  // Past its deadline: not to be begun.
  static bool IsLate(const Transfer& transfer);
  // How each transfer ends that was taken.
  void Finish(std::unique_ptr<Transfer> transfer, TransferStatus status);
  // The transfer is another's to finish.
  void HandedOn(const Transfer& transfer) { queued_bytes_.fetch_sub(transfer.bytes, std::memory_order_relaxed); }

 private:
  EventLoop* const loop_;
  std::atomic<uint64_t> queued_bytes_{0};

  std::mutex mutex_;
  std::vector<std::unique_ptr<Transfer>> started_;  // guarded by mutex_
  bool work_posted_ = false;                        // guarded by mutex_
  bool closed_ = false;                             // guarded by mutex_
};

}  // namespace quarry::transport

#endif  // QUARRY_COMMON_TRANSPORT_TRANSFER_INBOX_H_
