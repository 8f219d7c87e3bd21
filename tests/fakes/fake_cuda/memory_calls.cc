// FAKE. Devices, contexts and memory.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/fakes/fake_cuda/state.h"

using quarry::fakes::cuda::Allocate;
using quarry::fakes::cuda::Allocation;
using quarry::fakes::cuda::CaptureMode;
using quarry::fakes::cuda::CheckCapture;
using quarry::fakes::cuda::ContextStack;
using quarry::fakes::cuda::CopyBytes;
using quarry::fakes::cuda::Current;
using quarry::fakes::cuda::Enter;
using quarry::fakes::cuda::kDevices;
using quarry::fakes::cuda::State;

namespace {

// The allocation that holds the address.
const std::pair<const uintptr_t, Allocation>* Find(const State& state, CUdeviceptr address) {
  auto after = state.allocations.upper_bound(address);
  if (after == state.allocations.begin()) return nullptr;
  --after;
  return address - after->first < after->second.bytes ? &*after : nullptr;
}

CUresult CopyNow(const char* function, CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  State& state = State::Get();
  {
    std::lock_guard lock(state.mutex);
    if (const CUresult result = Enter(&state, function); result != CUDA_SUCCESS) return result;
  }
  CopyBytes(to, from, bytes, Current()->device, /*host_must_be_locked=*/false);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuInit(unsigned) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  ++state.calls["cuInit"];
  state.initialised = true;
  return CUDA_SUCCESS;
}

// By which tools/gpu-check tells it from a real one.
extern const int quarry_fake_cuda = 1;

CUresult CUDAAPI cuDriverGetVersion(int* version) {
  *version = 12080;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetCount(int* count) {
  *count = kDevices;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetName(char* name, int bytes, CUdevice) {
  std::snprintf(name, static_cast<size_t>(bytes), "a fake GPU");
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetErrorName(CUresult error, const char** name) {
  switch (error) {
#define QUARRY_FAKE_NAME(code) \
  case code:                   \
    *name = #code;             \
    return CUDA_SUCCESS;
    QUARRY_FAKE_NAME(CUDA_SUCCESS)
    QUARRY_FAKE_NAME(CUDA_ERROR_INVALID_VALUE)
    QUARRY_FAKE_NAME(CUDA_ERROR_OUT_OF_MEMORY)
    QUARRY_FAKE_NAME(CUDA_ERROR_INVALID_CONTEXT)
    QUARRY_FAKE_NAME(CUDA_ERROR_INVALID_HANDLE)
    QUARRY_FAKE_NAME(CUDA_ERROR_ILLEGAL_ADDRESS)
    QUARRY_FAKE_NAME(CUDA_ERROR_LAUNCH_FAILED)
    QUARRY_FAKE_NAME(CUDA_ERROR_NOT_SUPPORTED)
    QUARRY_FAKE_NAME(CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
    QUARRY_FAKE_NAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
#undef QUARRY_FAKE_NAME
    default:
      *name = nullptr;
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult CUDAAPI cuGetErrorString(CUresult, const char** text) {
  *text = "said by a fake driver";
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
  if (ordinal < 0 || ordinal >= kDevices) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetAttribute(int* value, CUdevice_attribute, CUdevice) {
  *value = 1;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Enter(&state, "cuDevicePrimaryCtxRetain", false); result != CUDA_SUCCESS) return result;
  ++state.primary[device].retained;
  *context = &state.primary[device];
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  if (state.primary[device].retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  --state.primary[device].retained;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPushCurrent(CUcontext context) {
  ContextStack().push_back(context);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPopCurrent(CUcontext* context) {
  if (ContextStack().empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = ContextStack().back();
  ContextStack().pop_back();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext* context) {
  *context = Current();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  std::swap(CaptureMode(), *mode);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAlloc(CUdeviceptr* address, size_t bytes) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Enter(&state, "cuMemAlloc"); result != CUDA_SUCCESS) return result;
  if (const CUresult result = CheckCapture(&state); result != CUDA_SUCCESS) return result;
  *address = Allocate(&state, Current()->device, bytes, bytes, /*managed=*/false);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Enter(&state, "cuMemAllocManaged"); result != CUDA_SUCCESS) return result;
  *address = Allocate(&state, Current()->device, bytes, bytes, /*managed=*/true);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemFree(CUdeviceptr address) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  auto node = state.allocations.extract(address);
  if (node.empty()) return CUDA_ERROR_INVALID_VALUE;
  constexpr size_t kPage = 4096;
  const size_t mapped_bytes = (node.mapped().bytes + kPage - 1) / kPage * kPage;
  munmap(node.mapped().hidden, mapped_bytes);
  munmap(reinterpret_cast<void*>(address), mapped_bytes);
  close(node.mapped().file);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetAddressRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Enter(&state, "cuMemGetAddressRange"); result != CUDA_SUCCESS) return result;
  const auto* found = Find(state, address);
  if (found == nullptr) return CUDA_ERROR_NOT_FOUND;
  const size_t part = (address - found->first) / found->second.part_bytes * found->second.part_bytes;
  *base = found->first + part;
  *bytes = std::min(found->second.part_bytes, found->second.bytes - part);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data,
                                        CUdeviceptr address) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Enter(&state, "cuPointerGetAttributes", false); result != CUDA_SUCCESS) return result;
  const auto* found = Find(state, address);
  const bool is_locked = std::any_of(state.locked.begin(), state.locked.end(), [&](const auto& entry) {
    return address >= entry.first && address - entry.first < entry.second;
  });
  for (unsigned i = 0; i < count; ++i) {
    switch (attributes[i]) {
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<CUmemorytype*>(data[i]) =
            found != nullptr ? found->second.type : static_cast<CUmemorytype>(is_locked ? CU_MEMORYTYPE_HOST : 0);
        break;
      case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *static_cast<unsigned*>(data[i]) = found != nullptr && found->second.managed ? 1 : 0;
        break;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *static_cast<int*>(data[i]) = found != nullptr ? found->second.device : -2;
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostRegister(void* base, size_t bytes, unsigned flags) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Enter(&state, "cuMemHostRegister"); result != CUDA_SUCCESS) return result;
  if (const CUresult result = CheckCapture(&state); result != CUDA_SUCCESS) return result;
  if ((flags & CU_MEMHOSTREGISTER_PORTABLE) == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!state.locked.emplace(reinterpret_cast<uintptr_t>(base), bytes).second) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostUnregister(void* base) {
  State& state = State::Get();
  std::lock_guard lock(state.mutex);
  const bool known = state.locked.erase(reinterpret_cast<uintptr_t>(base)) != 0;
  return known ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult CUDAAPI cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
  return CopyNow("cuMemcpyHtoD", to, reinterpret_cast<CUdeviceptr>(from), bytes);
}

CUresult CUDAAPI cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
  return CopyNow("cuMemcpyDtoH", reinterpret_cast<CUdeviceptr>(to), from, bytes);
}

}  // extern "C"
