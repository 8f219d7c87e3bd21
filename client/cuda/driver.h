// The CUDA driver's functions, of the libcuda that the process has loaded. Never linked, never
// loaded from here, and never initialised from here: GPU memory exists only where somebody else
// has done all three. Depends on the standard library and the toolkit's headers alone.
#ifndef QUARRY_CLIENT_CUDA_DRIVER_H_
#define QUARRY_CLIENT_CUDA_DRIVER_H_

#include <cuda.h>
#include <cudaTypedefs.h>

#include <string>

namespace quarry::cuda {

// X(name in Driver, symbol, type). The symbols are those that cuda.h's macros stand for.
// clang-format off
#define QUARRY_CUDA_FUNCTIONS(X)                                                                  \
  X(PointerGetAttributes, "cuPointerGetAttributes", PFN_cuPointerGetAttributes_v7000)             \
  X(GetErrorName, "cuGetErrorName", PFN_cuGetErrorName_v6000)                                     \
  X(GetErrorString, "cuGetErrorString", PFN_cuGetErrorString_v6000)                               \
  X(DeviceGet, "cuDeviceGet", PFN_cuDeviceGet_v2000)                                              \
  X(DeviceGetAttribute, "cuDeviceGetAttribute", PFN_cuDeviceGetAttribute_v2000)                   \
  X(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", PFN_cuDevicePrimaryCtxRetain_v7000)       \
  X(DevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", PFN_cuDevicePrimaryCtxRelease_v11000)\
  X(CtxPushCurrent, "cuCtxPushCurrent_v2", PFN_cuCtxPushCurrent_v4000)                            \
  X(CtxPopCurrent, "cuCtxPopCurrent_v2", PFN_cuCtxPopCurrent_v4000)                               \
  X(CtxSynchronize, "cuCtxSynchronize", PFN_cuCtxSynchronize_v2000)                               \
  X(ThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode",                         \
    PFN_cuThreadExchangeStreamCaptureMode_v10010)                                                 \
  X(MemGetAddressRange, "cuMemGetAddressRange_v2", PFN_cuMemGetAddressRange_v3020)                \
  X(MemHostRegister, "cuMemHostRegister_v2", PFN_cuMemHostRegister_v6050)                         \
  X(MemHostUnregister, "cuMemHostUnregister", PFN_cuMemHostUnregister_v4000)                      \
  X(ModuleLoadData, "cuModuleLoadData", PFN_cuModuleLoadData_v2000)                               \
  X(ModuleUnload, "cuModuleUnload", PFN_cuModuleUnload_v2000)                                     \
  X(ModuleGetFunction, "cuModuleGetFunction", PFN_cuModuleGetFunction_v2000)                      \
  X(LaunchKernel, "cuLaunchKernel", PFN_cuLaunchKernel_v4000)                                     \
  X(StreamCreate, "cuStreamCreate", PFN_cuStreamCreate_v2000)                                     \
  X(StreamDestroy, "cuStreamDestroy_v2", PFN_cuStreamDestroy_v4000)                               \
  X(StreamGetCtx, "cuStreamGetCtx", PFN_cuStreamGetCtx_v9020)                                     \
  X(StreamIsCapturing, "cuStreamIsCapturing", PFN_cuStreamIsCapturing_v10000)                     \
  X(EventCreate, "cuEventCreate", PFN_cuEventCreate_v2000)                                        \
  X(EventDestroy, "cuEventDestroy_v2", PFN_cuEventDestroy_v4000)                                  \
  X(EventRecord, "cuEventRecord", PFN_cuEventRecord_v2000)                                        \
  X(EventQuery, "cuEventQuery", PFN_cuEventQuery_v2000)                                           \
  X(GetProcAddress, "cuGetProcAddress_v2", PFN_cuGetProcAddress_v12000)
// clang-format on

struct Driver {
#define QUARRY_CUDA_MEMBER(name, symbol, type) type name = nullptr;
  QUARRY_CUDA_FUNCTIONS(QUARRY_CUDA_MEMBER)
#undef QUARRY_CUDA_MEMBER
  // nullptr where the driver is older.
  PFN_cuFuncLoad_v12040 FuncLoad = nullptr;
  PFN_cuMemcpyBatchAsync_v12080 MemcpyBatchAsync = nullptr;  // as CUDA 12.8 has it
  // The first of the functions that this libcuda lacks; empty: none.
  std::string missing;

  // Of the libcuda.so.1 in this process, which then stays loaded; nullptr when there is none.
  static const Driver* Find();
};

// How a call of the driver ended. CUDA_SUCCESS or the call's name with the error.
class [[nodiscard]] Outcome {
 public:
  Outcome() = default;
  Outcome(const char* call, CUresult result) : call_(call), result_(result) {}

  bool ok() const { return result_ == CUDA_SUCCESS; }
  CUresult result() const { return result_; }
  // "cuLaunchKernel: CUDA_ERROR_LAUNCH_FAILED (unspecified launch failure)"
  std::string Describe(const Driver& driver) const;

 private:
  const char* call_ = "";
  CUresult result_ = CUDA_SUCCESS;
};

// Makes a context the current one for its scope, whatever was before, and lets calls that a
// capture under way in another thread would forbid (cuEventQuery among them) pass without
// harm to that capture.
class ContextScope {
 public:
  ContextScope(const Driver& driver, CUcontext context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  // Not OK: the context is not current, and nothing must be called within.
  const Outcome& outcome() const { return outcome_; }

 private:
  const Driver& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // the thread's own, meanwhile
  Outcome outcome_;
};

}  // namespace quarry::cuda

#endif  // QUARRY_CLIENT_CUDA_DRIVER_H_
