#include "tests/fakes/fake_cuda/state.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace quarry::fakes::cuda {

State& State::Get() {
  static State* state = [] {
    auto* made = new State();
    for (int i = 0; i < kDevices; ++i) {
      made->primary[i].device = made->foreign[i].device = i;
      made->foreign[i].primary = false;
    }
    return made;
  }();
  return *state;
}

std::vector<CUctx_st*>& ContextStack() {
  thread_local std::vector<CUctx_st*> stack;
  return stack;
}

CUstreamCaptureMode& CaptureMode() {
  thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

CUctx_st* Current() { return ContextStack().empty() ? nullptr : ContextStack().back(); }

CUresult Enter(State* state, const char* function, bool context) {
  ++state->calls[function];
  if (!state->initialised) return CUDA_ERROR_NOT_INITIALIZED;
  CUctx_st* current = Current();
  if (context) {
    if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (current->primary && current->retained == 0) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (state->sticky[current->device] != CUDA_SUCCESS) return state->sticky[current->device];
  }
  const auto failure = state->failures.find(function);
  if (failure == state->failures.end() || failure->second.after-- > 0) return CUDA_SUCCESS;
  const Failure failed = failure->second;
  state->failures.erase(failure);
  if (failed.sticky && current != nullptr) FailDevice(state, current->device, failed.result);
  return failed.result;
}

void AddFault(State* state, const std::string& what) { state->faults += what + "\n"; }

CUresult CheckCapture(State* state) {
  if (CaptureMode() == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (CUstream stream : state->streams) {
    if (stream->capture == CU_STREAM_CAPTURE_STATUS_NONE) continue;
    if (stream->capture_mode != CU_STREAM_CAPTURE_MODE_GLOBAL) continue;
    stream->capture = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

CUstream FindStream(State* state, CUstream handle) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY) {
    if (Current() == nullptr) return nullptr;
    CUstream& legacy = state->legacy[Current()->device];
    if (legacy == nullptr) legacy = NewStream(state, Current());
    return legacy;
  }
  return state->streams.count(handle) != 0 ? handle : nullptr;
}

CUstream NewStream(State* state, CUctx_st* context) {
  auto* stream = new CUstream_st();
  stream->context = context;
  state->streams.insert(stream);
  stream->worker = std::thread([state, stream] {
    std::unique_lock lock(state->mutex);
    while (true) {
      state->changed.wait(lock, [&] {
        const bool may_run = !state->held || stream->may_run > 0;
        return stream->closing ? stream->tasks.empty() || may_run : !stream->tasks.empty() && may_run;
      });
      if (stream->tasks.empty()) return;
      if (state->held) --stream->may_run;
      const std::function<void()> task = std::move(stream->tasks.front());
      stream->tasks.pop_front();
      stream->running = true;
      lock.unlock();
      task();
      lock.lock();
      stream->running = false;
      state->changed.notify_all();
    }
  });
  return stream;
}

void AddTask(State* state, CUstream stream, std::function<void()> task) {
  stream->tasks.push_back(std::move(task));
  state->changed.notify_all();
}

void Drain(State* state, std::unique_lock<std::mutex>* lock, CUstream stream) {
  state->changed.wait(*lock, [&] {
    return (stream->tasks.empty() && !stream->running) || state->sticky[stream->context->device] != CUDA_SUCCESS;
  });
}

void FailDevice(State* state, int device, CUresult result) {
  state->sticky[device] = result;
  ++state->failures_of_device[device];
  state->changed.notify_all();
}

bool IsAlive(int device, int failures) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  return state.failures_of_device[device] == failures;
}

std::byte* Reach(uint64_t address, size_t bytes, int device, bool host_must_be_locked) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  const auto holds = [&](uintptr_t base, size_t length) {
    return address >= base && address - base <= length && bytes <= length - (address - base);
  };
  for (const auto& [base, allocation] : state.allocations) {
    if (!holds(base, allocation.bytes)) continue;
    if (allocation.managed || allocation.device == device) return allocation.hidden + (address - base);
  }
  // What is not one of its own allocations is the host's.
  const bool in_device_memory = std::any_of(state.allocations.begin(), state.allocations.end(), [&](const auto& entry) {
    return address >= entry.first && address - entry.first < entry.second.bytes;
  });
  const bool is_locked = std::any_of(state.locked.begin(), state.locked.end(),
                                     [&](const auto& entry) { return holds(entry.first, entry.second); });
  if (!in_device_memory && (is_locked || !host_must_be_locked)) return reinterpret_cast<std::byte*>(address);
  AddFault(&state, "device " + std::to_string(device) + " cannot reach " + std::to_string(bytes) + " bytes at " +
                       std::to_string(address));
  FailDevice(&state, device, CUDA_ERROR_ILLEGAL_ADDRESS);
  return nullptr;
}

void CopyBytes(uint64_t to, uint64_t from, size_t bytes, int device, bool host_must_be_locked) {
  std::byte* target = Reach(to, bytes, device, host_must_be_locked);
  const std::byte* source = Reach(from, bytes, device, host_must_be_locked);
  if (target != nullptr && source != nullptr) std::memcpy(target, source, bytes);
}

CUdeviceptr Allocate(State* state, int device, size_t bytes, size_t part_bytes, bool managed) {
  constexpr size_t kPage = 4096;
  const size_t mapped_bytes = (bytes + kPage - 1) / kPage * kPage;
  Allocation allocation{bytes, part_bytes, device, CU_MEMORYTYPE_DEVICE, managed, nullptr, -1};
  allocation.file = memfd_create("fake-cuda", MFD_CLOEXEC);
  if (allocation.file < 0 || ftruncate(allocation.file, static_cast<off_t>(mapped_bytes)) != 0) std::abort();
  void* hidden = mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, allocation.file, 0);
  // What the test and the client have of it: an address, at which nothing can be read or written.
  void* visible =
      mmap(nullptr, mapped_bytes, managed ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_SHARED, allocation.file, 0);
  if (hidden == MAP_FAILED || visible == MAP_FAILED) std::abort();
  allocation.hidden = static_cast<std::byte*>(hidden);
  state->allocations.emplace(reinterpret_cast<uintptr_t>(visible), allocation);
  return reinterpret_cast<CUdeviceptr>(visible);
}

// ------------------------------------------------------------- what a test can do

void Reset() {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  state.failures.clear();
  state.calls.clear();
  state.faults.clear();
  std::fill(std::begin(state.sticky), std::end(state.sticky), CUDA_SUCCESS);
  state.held = false;
  for (CUstream stream : state.streams) stream->may_run = 0;
  state.changed.notify_all();
}

void FailCall(const std::string& function, int after, CUresult result, bool sticky) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  state.failures[function] = {after, result, sticky};
}

int Calls(const std::string& function) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  return state.calls[function];
}

std::string Faults() {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  return state.faults;
}

void HoldStreams() {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  state.held = true;
}

void LetStreamsGo() {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  state.held = false;
  for (CUstream stream : state.streams) stream->may_run = 0;
  state.changed.notify_all();
}

void LetRun(CUstream handle, int tasks) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  if (CUstream stream = FindStream(&state, handle); stream != nullptr) stream->may_run += tasks;
  state.changed.notify_all();
}

CUdeviceptr AllocateInParts(int device, size_t bytes) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  return Allocate(&state, device, bytes, kPartBytes, /*managed=*/false);
}

CUstream MakeForeignStream(int device) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  return NewStream(&state, &state.foreign[device]);
}

int Retained(int device) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  return state.primary[device].retained;
}

size_t LockedBytes() {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  size_t bytes = 0;
  for (const auto& [base, length] : state.locked) bytes += length;
  return bytes;
}

}  // namespace quarry::fakes::cuda
