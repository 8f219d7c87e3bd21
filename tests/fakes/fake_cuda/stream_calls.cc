// FAKE. Streams, events, captures, modules, launches and batches of copies.
#include <cstring>
#include <utility>
#include <vector>

#include "client/cuda/copy_piece.h"
#include "tests/fakes/fake_cuda/kernel_on_host.h"
#include "tests/fakes/fake_cuda/state.h"

using quarry::cuda::CopyPiece;
using quarry::cuda::kCopyKernel;
using quarry::fakes::cuda::AddFault;
using quarry::fakes::cuda::AddTask;
using quarry::fakes::cuda::CheckCapture;
using quarry::fakes::cuda::CopyBytes;
using quarry::fakes::cuda::Current;
using quarry::fakes::cuda::Drain;
using quarry::fakes::cuda::Enter;
using quarry::fakes::cuda::FindStream;
using quarry::fakes::cuda::IsAlive;
using quarry::fakes::cuda::NewStream;
using quarry::fakes::cuda::Reach;
using quarry::fakes::cuda::RunCopyKernel;
using quarry::fakes::cuda::State;

namespace {

// Queues work of the device's on the stream.
CUresult QueueWork(State* state, CUstream handle, std::function<void(int device)> work) {
  CUstream stream = FindStream(state, handle);
  if (stream == nullptr || stream->context != Current()) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture != CU_STREAM_CAPTURE_STATUS_NONE) {
    AddFault(state, "work was queued on a stream that is being captured");
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  const int device = stream->context->device;
  AddTask(state, stream, [device, failures = state->failures_of_device[device], work = std::move(work)] {
    if (IsAlive(device, failures)) work(device);
  });
  return CUDA_SUCCESS;
}

CUresult CopyAsync(const char* function, CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Enter(&state, function); result != CUDA_SUCCESS) return result;
  return QueueWork(&state, stream, [=](int device) { CopyBytes(to, from, bytes, device); });
}

// As of CUDA 12.8; what it is given is read before it returns.
CUresult CUDAAPI BatchCopy(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,
                           CUmemcpyAttributes* attributes, size_t* attribute_indices, size_t attribute_count, size_t*,
                           CUstream stream) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Enter(&state, "cuMemcpyBatchAsync"); result != CUDA_SUCCESS) return result;
  if (stream == nullptr || stream == CU_STREAM_LEGACY || count == 0) return CUDA_ERROR_INVALID_VALUE;
  const bool described = attribute_count == 1 && attribute_indices[0] == 0 &&
                         attributes[0].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  if (!described) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CopyPiece> pieces;
  for (size_t i = 0; i < count; ++i) pieces.push_back({to[i], from[i], sizes[i]});
  return QueueWork(&state, stream, [pieces = std::move(pieces)](int device) {
    for (const CopyPiece& piece : pieces) CopyBytes(piece.to, piece.from, piece.bytes, device);
  });
}

CUresult CUDAAPI LoadFunction(CUfunction function) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Enter(&state, "cuFuncLoad"); result != CUDA_SUCCESS) return result;
  return function->context == Current() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return CopyAsync("cuMemcpyHtoDAsync", to, reinterpret_cast<CUdeviceptr>(from), bytes, stream);
}

CUresult CUDAAPI cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return CopyAsync("cuMemcpyDtoHAsync", reinterpret_cast<CUdeviceptr>(to), from, bytes, stream);
}

CUresult CUDAAPI cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t,
                                  CUdriverProcAddressQueryResult* found) {
  *function = nullptr;
  if (std::strcmp(symbol, "cuMemcpyBatchAsync") == 0 && version >= 12080 && version < 13000) {
    *function = reinterpret_cast<void*>(&BatchCopy);
  } else if (std::strcmp(symbol, "cuFuncLoad") == 0 && version >= 12040) {
    *function = reinterpret_cast<void*>(&LoadFunction);
  }
  *found = *function != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult CUDAAPI cuStreamCreate(CUstream* stream, unsigned) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Enter(&state, "cuStreamCreate"); result != CUDA_SUCCESS) return result;
  *stream = NewStream(&state, Current());
  return CUDA_SUCCESS;
}

// Waits for what is queued, unlike the real one.
CUresult CUDAAPI cuStreamDestroy(CUstream stream) {
  State& state = State::Get();
  {
    std::lock_guard lock(state.mutex);
    if (state.streams.erase(stream) == 0) return CUDA_ERROR_INVALID_HANDLE;
    stream->closing = true;
    state.changed.notify_all();
  }
  stream->worker.join();
  delete stream;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamGetCtx(CUstream handle, CUcontext* context) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Enter(&state, "cuStreamGetCtx"); result != CUDA_SUCCESS) return result;
  CUstream stream = FindStream(&state, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *context = stream->context;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamSynchronize(CUstream handle) {
  State& state = State::Get();
  std::unique_lock lock(state.mutex);
  if (const CUresult result = Enter(&state, "cuStreamSynchronize"); result != CUDA_SUCCESS) return result;
  CUstream stream = FindStream(&state, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Drain(&state, &lock, stream);
  return state.sticky[stream->context->device];
}

CUresult CUDAAPI cuCtxSynchronize() {
  State& state = State::Get();
  std::unique_lock lock(state.mutex);
  if (const CUresult result = Enter(&state, "cuCtxSynchronize"); result != CUDA_SUCCESS) return result;
  const int device = Current()->device;
  state.changed.wait(lock, [&] {
    bool at_rest = true;
    for (CUstream stream : state.streams) {
      if (stream->context->device == device) at_rest = at_rest && stream->tasks.empty() && !stream->running;
    }
    return at_rest || state.sticky[device] != CUDA_SUCCESS;
  });
  return state.sticky[device];
}

CUresult CUDAAPI cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  CUstream stream = FindStream(&state, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  stream->capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  stream->capture_mode = mode;
  return CUDA_SUCCESS;
}

// Not OK: something has spoilt the capture.
CUresult CUDAAPI cuStreamEndCapture(CUstream handle, CUgraph*) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  CUstream stream = FindStream(&state, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const CUstreamCaptureStatus was = std::exchange(stream->capture, CU_STREAM_CAPTURE_STATUS_NONE);
  return was == CU_STREAM_CAPTURE_STATUS_ACTIVE ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Enter(&state, "cuStreamIsCapturing"); result != CUDA_SUCCESS) return result;
  CUstream stream = FindStream(&state, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *status = stream->capture;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventCreate(CUevent* event, unsigned) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Enter(&state, "cuEventCreate"); result != CUDA_SUCCESS) return result;
  *event = new CUevent_st();
  state.events.insert(*event);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventDestroy(CUevent event) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  if (state.events.erase(event) == 0) return CUDA_ERROR_INVALID_HANDLE;
  // Streams may still have tasks of it.
  if (event->recorded == event->reached) delete event;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventRecord(CUevent event, CUstream handle) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Enter(&state, "cuEventRecord"); result != CUDA_SUCCESS) return result;
  CUstream stream = FindStream(&state, handle);
  if (stream == nullptr || state.events.count(event) == 0) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture != CU_STREAM_CAPTURE_STATUS_NONE) {
    AddFault(&state, "an event was recorded on a stream that is being captured");
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  const uint64_t recorded = ++event->recorded;
  AddTask(&state, stream, [event, recorded] {
    State& shared = State::Get();
    std::lock_guard task_lock(shared.mutex);
    event->reached = recorded;
    shared.changed.notify_all();
    if (shared.events.count(event) == 0 && event->recorded == recorded) delete event;
  });
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventQuery(CUevent event) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Enter(&state, "cuEventQuery"); result != CUDA_SUCCESS) return result;
  if (const CUresult result = CheckCapture(&state); result != CUDA_SUCCESS) return result;
  if (state.events.count(event) == 0) return CUDA_ERROR_INVALID_HANDLE;
  return event->reached == event->recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream handle, CUevent event, unsigned) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  CUstream stream = FindStream(&state, handle);
  if (stream == nullptr || state.events.count(event) == 0) return CUDA_ERROR_INVALID_HANDLE;
  AddTask(&state, stream, [event, recorded = event->recorded] {
    State& shared = State::Get();
    std::unique_lock task_lock(shared.mutex);
    shared.changed.wait(task_lock, [&] { return event->reached >= recorded; });
  });
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleLoadData(CUmodule* module, const void* image) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Enter(&state, "cuModuleLoadData"); result != CUDA_SUCCESS) return result;
  if (const CUresult result = CheckCapture(&state); result != CUDA_SUCCESS) return result;
  constexpr unsigned kFatbinMagic = 0xba55ed50;
  unsigned magic = 0;
  std::memcpy(&magic, image, sizeof magic);
  if (magic != kFatbinMagic) return CUDA_ERROR_INVALID_IMAGE;
  *module = new CUmod_st{Current()};
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleUnload(CUmodule module) {
  delete module;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  static auto* functions = new std::map<CUctx_st*, CUfunc_st>();
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Enter(&state, "cuModuleGetFunction"); result != CUDA_SUCCESS) return result;
  if (std::strcmp(name, kCopyKernel) != 0) return CUDA_ERROR_NOT_FOUND;
  *function = &(*functions)[module->context];
  (*function)->context = module->context;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned blocks, unsigned, unsigned, unsigned block_threads,
                                unsigned, unsigned, unsigned, CUstream stream, void** parameters, void**) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Enter(&state, "cuLaunchKernel"); result != CUDA_SUCCESS) return result;
  if (function->context != Current()) return CUDA_ERROR_INVALID_CONTEXT;
  const auto address = reinterpret_cast<uint64_t>(*static_cast<const CopyPiece**>(parameters[0]));
  const unsigned count = *static_cast<unsigned*>(parameters[1]);
  return QueueWork(&state, stream, [=](int device) {
    const std::byte* given = Reach(address, count * sizeof(CopyPiece), device);
    if (given == nullptr) return;
    std::vector<CopyPiece> pieces(count);
    std::memcpy(pieces.data(), given, count * sizeof(CopyPiece));
    for (CopyPiece& piece : pieces) {
      piece.to = reinterpret_cast<uint64_t>(Reach(piece.to, piece.bytes, device));
      piece.from = reinterpret_cast<uint64_t>(Reach(piece.from, piece.bytes, device));
      if (piece.to == 0 || piece.from == 0) return;
    }
    RunCopyKernel(blocks, block_threads, pieces.data(), count);
  });
}

}  // extern "C"
