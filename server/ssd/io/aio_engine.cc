#include "server/ssd/io/aio_engine.h"

#include <libaio.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <utility>

#include "server/ssd/io/kernel_engine.h"
#include "server/ssd/io/thread_engine.h"

namespace quarry::server {
namespace {

constexpr uint32_t kSyncThreads = 4;

// Syncs go to threads: before Linux 4.18, and on file systems of some sandboxes, libaio has
// none, and beside an fdatasync a change of threads costs nothing.
class AioQueue final : public KernelQueue {
 public:
  AioQueue(uint32_t depth, int event_fd) : event_fd_(event_fd), syncs_(depth, kSyncThreads) {}
  ~AioQueue() override {
    if (context_ != nullptr) io_destroy(context_);
  }

  absl::Status Init() {
    const int error = io_setup(static_cast<int>(syncs_.depth()), &context_);
    return error < 0 ? EngineUnavailable(-error) : absl::OkStatus();
  }
  int Start(KernelOp* op) override;
  size_t Collect(absl::Span<EndedOp> ended) override;

 private:
  void StartSync(KernelOp* op);
  size_t CollectSyncs(absl::Span<EndedOp> ended);

  const int event_fd_;
  io_context_t context_ = nullptr;
  std::mutex mutex_;
  std::vector<EndedOp> ended_syncs_;  // guarded by mutex_
  ThreadEngine syncs_;                // last: its threads use the rest
};

int AioQueue::Start(KernelOp* op) {
  IoRequest& request = op->request;
  if (request.kind == IoRequest::Kind::kSync) {
    StartSync(op);
    return 0;
  }
  iocb block;  // io_submit copies it
  const auto parts = static_cast<int>(request.parts.size());
  const auto offset = static_cast<long long>(request.offset);  // NOLINT: libaio's type
  if (request.kind == IoRequest::Kind::kRead) {
    io_prep_preadv(&block, request.fd, request.parts.data(), parts, offset);
  } else {
    io_prep_pwritev(&block, request.fd, request.parts.data(), parts, offset);
  }
  io_set_eventfd(&block, event_fd_);
  block.data = op->ToKernel();
  iocb* blocks[] = {&block};
  int taken;
  do {
    taken = io_submit(context_, 1, blocks);
  } while (taken == -EINTR);
  if (taken < 0) return taken;
  return taken == 1 ? 0 : -EAGAIN;
}

void AioQueue::StartSync(KernelOp* op) {
  syncs_.Submit({.kind = IoRequest::Kind::kSync, .fd = op->request.fd, .done = [this, op](int64_t result) {
                   {
                     const std::lock_guard lock(mutex_);
                     ended_syncs_.push_back({op, result});
                   }
                   (void)eventfd_write(event_fd_, 1);
                 }});
}

size_t AioQueue::CollectSyncs(absl::Span<EndedOp> ended) {
  const std::lock_guard lock(mutex_);
  const size_t count = std::min(ended.size(), ended_syncs_.size());
  const auto taken = ended_syncs_.begin() + static_cast<std::ptrdiff_t>(count);
  std::copy(ended_syncs_.begin(), taken, ended.begin());
  ended_syncs_.erase(ended_syncs_.begin(), taken);
  return count;
}

size_t AioQueue::Collect(absl::Span<EndedOp> ended) {
  size_t count = CollectSyncs(ended);
  std::array<io_event, 64> events;
  while (count < ended.size()) {
    const auto room = static_cast<long>(std::min(events.size(), ended.size() - count));  // NOLINT: libaio's type
    timespec at_once = {};
    const int got = io_getevents(context_, 0, room, events.data(), &at_once);
    if (got == -EINTR) continue;
    if (got <= 0) break;
    for (int i = 0; i < got; ++i) {
      ended[count++] = {KernelOp::FromKernel(events[i].data), static_cast<int64_t>(events[i].res)};
    }
  }
  return count;
}

}  // namespace

absl::StatusOr<std::unique_ptr<IoEngine>> CreateAioEngine(uint32_t depth) {
  absl::StatusOr<UniqueFd> event = MakeEvent();
  if (!event.ok()) return event.status();
  auto queue = std::make_unique<AioQueue>(depth, event->get());
  if (absl::Status status = queue->Init(); !status.ok()) return status;
  return std::make_unique<KernelEngine>("libaio", depth, *std::move(event), std::move(queue));
}

}  // namespace quarry::server
