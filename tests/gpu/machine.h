// The driver as tools/gpu-check needs it: loaded by it, with the calls that only an owner of GPU
// memory makes. No package but the toolkit's headers.
#ifndef QUARRY_TESTS_GPU_MACHINE_H_
#define QUARRY_TESTS_GPU_MACHINE_H_

#include <cuda.h>
#include <cudaTypedefs.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "client/cuda/driver.h"

namespace quarry::gpu_check {

// X(name, symbol, type)
#define QUARRY_GPU_CHECK_FUNCTIONS(X)                                        \
  X(Init, "cuInit", PFN_cuInit_v2000)                                        \
  X(DriverGetVersion, "cuDriverGetVersion", PFN_cuDriverGetVersion_v2020)    \
  X(DeviceGetName, "cuDeviceGetName", PFN_cuDeviceGetName_v2000)             \
  X(DeviceGetCount, "cuDeviceGetCount", PFN_cuDeviceGetCount_v2000)          \
  X(MemAlloc, "cuMemAlloc_v2", PFN_cuMemAlloc_v3020)                         \
  X(MemFree, "cuMemFree_v2", PFN_cuMemFree_v3020)                            \
  X(MemcpyHtoD, "cuMemcpyHtoD_v2", PFN_cuMemcpyHtoD_v3020)                   \
  X(MemcpyDtoH, "cuMemcpyDtoH_v2", PFN_cuMemcpyDtoH_v3020)                   \
  X(MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", PFN_cuMemcpyHtoDAsync_v3020)    \
  X(MemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", PFN_cuMemcpyDtoHAsync_v3020)    \
  X(StreamSynchronize, "cuStreamSynchronize", PFN_cuStreamSynchronize_v2000) \
  X(StreamWaitEvent, "cuStreamWaitEvent", PFN_cuStreamWaitEvent_v3020)

struct Machine {
#define QUARRY_GPU_CHECK_MEMBER(name, symbol, type) type name = nullptr;
  QUARRY_GPU_CHECK_FUNCTIONS(QUARRY_GPU_CHECK_MEMBER)
#undef QUARRY_GPU_CHECK_MEMBER
  const cuda::Driver* driver = nullptr;
  bool fake = false;
  int devices = 0;

  // Loads the driver (of $QUARRY_GPU_CHECK_DRIVER, or the system's) and initialises it; ends the
  // program where that fails.
  static Machine Open();
  // "NVIDIA H200, driver for CUDA 13.0"; a fake one says so.
  std::string Describe(int device) const;
};

// End the program, naming what failed.
void Must(const Machine& machine, CUresult result, const char* what);
void Must(const Machine& machine, const cuda::Outcome& outcome);

// GPU memory for a scope of its device's context, which must be current.
class DeviceMemory {
 public:
  DeviceMemory(const Machine& machine, size_t bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  CUdeviceptr address() const { return address_; }
  void Write(const std::vector<std::byte>& bytes);
  std::vector<std::byte> Read() const;

 private:
  const Machine& machine_;
  const size_t bytes_;
  CUdeviceptr address_ = 0;
};

// A shared memfd, all of it in place: what the client's ring lies in.
class SharedBytes {
 public:
  explicit SharedBytes(size_t bytes);
  ~SharedBytes();
  SharedBytes(const SharedBytes&) = delete;
  SharedBytes& operator=(const SharedBytes&) = delete;
  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }

 private:
  const size_t bytes_;
  std::byte* data_ = nullptr;
};

}  // namespace quarry::gpu_check

#endif  // QUARRY_TESTS_GPU_MACHINE_H_
