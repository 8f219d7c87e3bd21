// The thread, and what callers hand over to it. Parts and copies have files of their own.
#include "client/cuda/staging.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "client/signal_blocker.h"
#include "common/clock.h"

namespace quarry {
namespace {

// Copies that have begun end within microseconds; those behind other work of a stream may take
// as long as that takes.
constexpr int64_t kFirstPollNs = 20'000;
constexpr int64_t kLongestPollNs = 1'000'000;
constexpr int64_t kNsPerSecond = 1'000'000'000;

}  // namespace

absl::StatusOr<std::unique_ptr<GpuTransfers>> StartGpuTransfers(ClientImpl* client, size_t staging_bytes,
                                                                std::shared_ptr<AtomicCounters> counters) {
  const cuda::Driver* driver = cuda::Driver::Find();
  if (driver == nullptr) return absl::FailedPreconditionError("GPU memory: no libcuda.so.1 in this process");
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return ErrnoStatus(errno, "cannot make an eventfd for GPU transfers");
  auto ring = client->AllocateShared(staging_bytes);
  if (!ring.ok()) return ring.status();
  return std::make_unique<Staging>(client, *driver, *std::move(ring), std::move(wake), std::move(counters));
}

Staging::Staging(ClientImpl* client, const cuda::Driver& driver, SharedMemory ring, UniqueFd wake,
                 std::shared_ptr<AtomicCounters> counters)
    : client_(client),
      driver_(driver),
      counters_(std::move(counters)),
      completions_(std::make_shared<CompletionQueue::Impl>(CompletionQueue::Impl::Wakeup::kEventFd)),
      wake_(std::move(wake)),
      ring_(std::move(ring)),
      space_(ring_.bytes()) {
  const SignalBlocker blocker;
  thread_ = std::thread([this] { Run(); });
}

Staging::~Staging() {
  Stop();
  ring_lock_.Unlock();
}

void Staging::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  Wake();
  if (thread_.joinable()) thread_.join();
}

void Staging::Wake() {
  const uint64_t one = 1;
  // Fails only where it is readable already.
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);
}

absl::StatusOr<Staging::Gpu*> Staging::GpuFor(int number) {
  {
    std::lock_guard lock(mutex_);
    if (const auto known = gpus_.find(number); known != gpus_.end()) {
      return known->second->failed.ok() ? absl::StatusOr<Gpu*>(known->second.get()) : known->second->failed;
    }
  }
  auto gpu = std::make_unique<Gpu>();
  const cuda::Outcome opened = cuda::Copier::Open(driver_, number, cuda::CopierOptions(), &gpu->copier);
  if (!opened.ok()) return CudaError(opened);
  std::lock_guard lock(mutex_);
  if (gpus_.empty()) {
    const cuda::Outcome locked = ring_lock_.Lock(driver_, gpu->copier->context(), ring_.base(), ring_.bytes());
    if (!locked.ok()) return CudaError(locked);
  }
  return gpus_.emplace(number, std::move(gpu)).first->second.get();
}

absl::Status Staging::Admit(MemoryRange range, int gpu) {
  const auto admitted = GpuFor(gpu);
  if (!admitted.ok()) return admitted.status();
  return CheckAllocated(driver_, (*admitted)->copier->context(), range, gpu);
}

absl::Status Staging::CudaError(const cuda::Outcome& outcome) const {
  if (outcome.result() == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ||
      outcome.result() == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
    return absl::FailedPreconditionError(absl::StrCat(
        "gpu_stream: is being captured, which copies of Quarry's cannot be (", outcome.Describe(driver_), ")"));
  }
  return absl::InternalError(absl::StrCat("GPU memory: ", outcome.Describe(driver_)));
}

absl::Status Staging::CheckStream(const Gpu& gpu, int number, CUstream stream) const {
  if (stream == nullptr) return absl::OkStatus();
  if (stream == CU_STREAM_PER_THREAD) {
    return absl::InvalidArgumentError("gpu_stream: CU_STREAM_PER_THREAD is another stream in the client's own thread");
  }
  const cuda::ContextScope scope(driver_, gpu.copier->context());
  if (!scope.outcome().ok()) return CudaError(scope.outcome());
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  const cuda::Outcome asked("cuStreamIsCapturing", driver_.StreamIsCapturing(stream, &capture));
  if (!asked.ok()) return CudaError(asked);
  if (capture != CU_STREAM_CAPTURE_STATUS_NONE) {
    return CudaError({"cuStreamIsCapturing", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED});
  }
  CUcontext context = nullptr;
  const cuda::Outcome found("cuStreamGetCtx", driver_.StreamGetCtx(stream, &context));
  if (!found.ok() || context != gpu.copier->context()) {
    return absl::InvalidArgumentError(
        absl::StrCat("gpu_stream: not of the primary context of GPU ", number, ", where the items lie"));
  }
  return absl::OkStatus();
}

absl::Status Staging::CheckItems(const GpuRequest& request) const {
  for (size_t i = 0; i < request.items.size(); ++i) {
    const size_t bytes = TotalBytes(request.items[i].segments);
    if (bytes <= ring_.bytes()) continue;
    return absl::InvalidArgumentError(absl::StrCat("items[", i, "].segments: ", bytes, " bytes of GPU memory; at most ",
                                                   ring_.bytes(), " (gpu_staging_bytes)"));
  }
  return absl::OkStatus();
}

absl::Status Staging::Begin(std::unique_ptr<GpuRequest> request) {
  const auto gpu = GpuFor(request->gpu);
  if (!gpu.ok()) return gpu.status();
  absl::Status status = CheckStream(**gpu, request->gpu, static_cast<CUstream>(request->stream));
  if (status.ok()) status = CheckItems(*request);
  if (!status.ok()) return status;
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return absl::CancelledError("the client is closed");
    if (operation_count_ >= kMaxStagedOperations) {
      return absl::ResourceExhaustedError(
          absl::StrCat("at most ", kMaxStagedOperations, " operations on GPU memory may be under way"));
    }
    ++operation_count_;
    begun_.push_back(std::make_shared<StagedOperation>(std::move(request), counters_));
  }
  Wake();
  return absl::OkStatus();
}

void Staging::Cancel(OperationId operation) {
  {
    std::lock_guard lock(mutex_);
    // Taken at once by the thread: an entry an operation at most.
    if (std::find(cancelled_.begin(), cancelled_.end(), operation) != cancelled_.end()) return;
    cancelled_.push_back(operation);
  }
  Wake();
}

Staging::Gpu& Staging::GpuOfOperation(const StagedOperation& operation) {
  std::lock_guard lock(mutex_);
  return *gpus_.find(operation.request().gpu)->second;
}

void Staging::Run() {
  pthread_setname_np(pthread_self(), "quarry-gpu");
  while (true) {
    TakeInbox();
    TakeCompletions();
    EndLate();
    CopyLanded();
    StartParts();
    bool stopping = false;
    std::vector<Gpu*> gpus;
    {
      std::lock_guard lock(mutex_);
      stopping = stopping_ && begun_.empty();
      for (const auto& [number, gpu] : gpus_) gpus.push_back(gpu.get());
    }
    const size_t parts = parts_.size();
    bool progress = false;
    bool running = false;
    for (Gpu* gpu : gpus) {
      QueueCopies(gpu);
      progress = PollCopies(gpu) || progress;
      running = running || !gpu->running.empty();
    }
    if (stopping && operations_.empty() && !running) return;
    if (progress) poll_ns_ = 0;
    // Others may have waited for that, too.
    if (progress || parts_.size() != parts) continue;
    poll_ns_ = !running ? 0 : std::clamp(poll_ns_ * 2, kFirstPollNs, kLongestPollNs);
    Wait();
  }
}

void Staging::Wait() {
  int64_t wait_ns = poll_ns_ == 0 ? -1 : poll_ns_;
  if (!deadlines_.empty()) {
    const int64_t left_ns = std::max<int64_t>(deadlines_.begin()->first - Clock::Real()->NowNs(), 0);
    wait_ns = wait_ns < 0 ? left_ns : std::min(wait_ns, left_ns);
  }
  timespec timeout{};
  timeout.tv_sec = wait_ns / kNsPerSecond;
  timeout.tv_nsec = wait_ns % kNsPerSecond;
  pollfd descriptors[] = {{completions_->fd(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
  ppoll(descriptors, 2, wait_ns < 0 ? nullptr : &timeout, nullptr);
  uint64_t drained = 0;
  if ((descriptors[1].revents & POLLIN) != 0) {
    [[maybe_unused]] const ssize_t got = read(wake_.get(), &drained, sizeof drained);
  }
}

void Staging::TakeInbox() {
  std::vector<OperationPtr> begun;
  std::vector<OperationId> cancelled;
  bool stopping = false;
  {
    std::lock_guard lock(mutex_);
    begun.swap(begun_);
    cancelled.swap(cancelled_);
    stopping = stopping_;
  }
  for (const OperationPtr& operation : begun) Start(operation);
  for (const OperationId id : cancelled) {
    if (const auto found = operations_.find(id); found != operations_.end()) {
      Finish(OperationPtr(found->second), absl::CancelledError("cancelled by the caller"));
    }
  }
  while (stopping && !operations_.empty()) {
    Finish(OperationPtr(operations_.begin()->second), absl::CancelledError("the client is closed"));
  }
}

void Staging::EndLate() {
  const int64_t now = Clock::Real()->NowNs();
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    Finish(OperationPtr(operations_.find(deadlines_.begin()->second)->second),
           absl::DeadlineExceededError("the operation's deadline has passed"));
  }
}

}  // namespace quarry
