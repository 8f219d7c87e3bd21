#include "server/ssd/io/kernel_engine.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace quarry::server {
namespace {

// How soon what the kernel had no room for is offered again when nothing ends meanwhile.
constexpr int kRetryMs = 1;
// Of one request; then it is an error like any other.
constexpr uint32_t kMaxRetries = 100;
constexpr size_t kBatch = 64;

bool NoRoom(int error) { return error == -EAGAIN || error == -EBUSY; }

// When the thread that submitted them exits first, io_uring may end requests with EFAULT (it
// would have had to go on with them in that thread) or ECANCELED. Some drivers of old kernels
// say EAGAIN rather than wait.
bool MayRetry(int64_t result) {
  return result == -EFAULT || result == -ECANCELED || result == -EINTR || result == -EAGAIN;
}

}  // namespace

absl::StatusOr<UniqueFd> MakeEvent() {
  UniqueFd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) return EngineUnavailable(errno);
  return event;
}

absl::Status EngineUnavailable(int error) { return absl::UnavailableError(std::strerror(error)); }

KernelEngine::KernelEngine(absl::string_view name, uint32_t depth, UniqueFd event, std::unique_ptr<KernelQueue> queue)
    : name_(name), depth_(depth), event_(std::move(event)), queue_(std::move(queue)), thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), "quarry-io");
}

KernelEngine::~KernelEngine() {
  stopping_.store(true);
  Wake();
  thread_.join();
}

void KernelEngine::Submit(IoRequest request) {
  auto op = std::make_unique<KernelOp>(std::move(request));
  in_flight_.fetch_add(1);
  bool wake;
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(op));
    wake = !StartWaitingLocked() || !refused_.empty();
  }
  if (wake) Wake();
}

bool KernelEngine::StartWaitingLocked() {
  while (!waiting_.empty()) {
    // From here on it may end at any moment.
    KernelOp* const op = waiting_.front().release();
    const int error = queue_->Start(op);
    if (NoRoom(error)) {
      waiting_.front().reset(op);
      return false;
    }
    waiting_.pop_front();
    if (error != 0) refused_.push_back({op, error});
  }
  return true;
}

void KernelEngine::Run() {
  bool stuck = false;
  while (true) {
    Sleep(stuck ? kRetryMs : -1);
    Deliver();
    std::vector<EndedOp> refused;
    {
      const std::lock_guard lock(mutex_);
      stuck = !StartWaitingLocked();
      refused.swap(refused_);
    }
    for (const EndedOp& ended : refused) End(ended.op, ended.result);
    if (stopping_.load() && in_flight_.load() == 0) return;
  }
}

void KernelEngine::Deliver() {
  std::array<EndedOp, kBatch> ended;
  size_t count;
  do {
    count = queue_->Collect(absl::MakeSpan(ended));
    for (size_t i = 0; i < count; ++i) {
      KernelOp* const op = ended[i].op;
      if (MayRetry(ended[i].result) && op->retries++ < kMaxRetries) {
        const std::lock_guard lock(mutex_);
        waiting_.emplace_back(op);
      } else {
        End(op, ended[i].result);
      }
    }
  } while (count == ended.size());
}

void KernelEngine::End(KernelOp* op, int64_t result) {
  const std::unique_ptr<KernelOp> owned(op);
  op->request.done(result);
  in_flight_.fetch_sub(1);
}

// Fails only when it is readable already.
void KernelEngine::Wake() { (void)eventfd_write(event_.get(), 1); }

void KernelEngine::Sleep(int timeout_ms) {
  pollfd event = {.fd = event_.get(), .events = POLLIN, .revents = 0};
  (void)poll(&event, 1, timeout_ms);
  eventfd_t count;
  (void)eventfd_read(event_.get(), &count);
}

}  // namespace quarry::server
