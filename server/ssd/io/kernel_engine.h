// What io_uring and libaio have in common: requests go to the kernel on the caller's thread,
// and one thread takes back what has ended.
#ifndef QUARRY_SERVER_SSD_IO_KERNEL_ENGINE_H_
#define QUARRY_SERVER_SSD_IO_KERNEL_ENGINE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/net/socket.h"
#include "server/ssd/io/io_engine.h"

namespace quarry::server {

// A request, at an address of its own for as long as the kernel has it.
struct KernelOp {
  explicit KernelOp(IoRequest r) : request(std::move(r)) {}

  // The kernel orders what was written before a submission before what is read after the
  // completion, but ThreadSanitizer cannot see that; it sees this.
  void* ToKernel() {
    given.store(true, std::memory_order_release);
    return this;
  }
  static KernelOp* FromKernel(void* data) {
    auto* op = static_cast<KernelOp*>(data);
    (void)op->given.load(std::memory_order_acquire);
    return op;
  }

  IoRequest request;
  uint32_t retries = 0;
  std::atomic<bool> given = false;
};

struct EndedOp {
  KernelOp* op = nullptr;
  int64_t result = 0;  // as IoRequest::done takes it
};

// One of the kernel's two ways. Makes the engine's eventfd readable when something has ended.
class KernelQueue {
 public:
  virtual ~KernelQueue() = default;
  // 0, or -errno: then nothing has begun. -EAGAIN and -EBUSY: there is no room at present.
  // One call at a time.
  virtual int Start(KernelOp* op) = 0;
  // What has ended, as many as fit; returns how many. Does not wait. One thread calls it,
  // perhaps while another is in Start.
  virtual size_t Collect(absl::Span<EndedOp> ended) = 0;
};

class KernelEngine final : public IoEngine {
 public:
  // `event`: the non-blocking eventfd that `queue` makes readable.
  KernelEngine(absl::string_view name, uint32_t depth, UniqueFd event, std::unique_ptr<KernelQueue> queue);
  // Waits for what is in flight.
  ~KernelEngine() override;

  absl::string_view name() const override { return name_; }
  void Submit(IoRequest request) override;
  uint32_t depth() const override { return depth_; }

 private:
  void Run();
  // False: the kernel has no room for all of waiting_.
  bool StartWaitingLocked();
  void Deliver();
  void End(KernelOp* op, int64_t result);
  void Wake();
  void Sleep(int timeout_ms);

  const absl::string_view name_;
  const uint32_t depth_;
  const UniqueFd event_;
  const std::unique_ptr<KernelQueue> queue_;
  std::atomic<uint64_t> in_flight_ = 0;  // submitted, and `done` has not returned
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  // Guarded by mutex_, as is KernelQueue::Start.
  std::deque<std::unique_ptr<KernelOp>> waiting_;
  std::vector<EndedOp> refused_;  // by Start; `done` is for the completion thread to call
  std::thread thread_;
};

// An eventfd for the above. Unavailable.
absl::StatusOr<UniqueFd> MakeEvent();
// Unavailable, with what strerror says of `error`, an errno.
absl::Status EngineUnavailable(int error);

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SSD_IO_KERNEL_ENGINE_H_
