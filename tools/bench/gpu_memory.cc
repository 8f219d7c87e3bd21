#include "tools/bench/gpu_memory.h"

#include <dlfcn.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "client/cuda/driver.h"

namespace quarry::bench {
namespace {

// X(name, symbol, type): what an owner of GPU memory calls beside what the client does.
#define QUARRY_BENCH_CUDA_FUNCTIONS(X)                     \
  X(Init, "cuInit", PFN_cuInit_v2000)                      \
  X(MemAlloc, "cuMemAlloc_v2", PFN_cuMemAlloc_v3020)       \
  X(MemFree, "cuMemFree_v2", PFN_cuMemFree_v3020)          \
  X(MemcpyHtoD, "cuMemcpyHtoD_v2", PFN_cuMemcpyHtoD_v3020) \
  X(MemcpyDtoH, "cuMemcpyDtoH_v2", PFN_cuMemcpyDtoH_v3020)

struct Calls {
#define QUARRY_BENCH_CUDA_MEMBER(name, symbol, type) type name = nullptr;
  QUARRY_BENCH_CUDA_FUNCTIONS(QUARRY_BENCH_CUDA_MEMBER)
#undef QUARRY_BENCH_CUDA_MEMBER
  const cuda::Driver* driver = nullptr;
};

absl::StatusOr<Calls> Load() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return absl::UnavailableError(absl::StrCat("--buffers cuda: ", dlerror()));
  Calls calls;
#define QUARRY_BENCH_CUDA_RESOLVE(name, symbol, type)          \
  calls.name = reinterpret_cast<type>(dlsym(library, symbol)); \
  if (calls.name == nullptr) return absl::UnavailableError("--buffers cuda: the driver lacks " symbol);
  QUARRY_BENCH_CUDA_FUNCTIONS(QUARRY_BENCH_CUDA_RESOLVE)
#undef QUARRY_BENCH_CUDA_RESOLVE
  calls.driver = cuda::Driver::Find();
  if (calls.driver == nullptr || !calls.driver->missing.empty()) {
    return absl::UnavailableError("--buffers cuda: the driver is too old");
  }
  return calls;
}

class Memory : public GpuMemory {
 public:
  explicit Memory(const Calls& calls) : calls_(calls) {}
  ~Memory() override {
    if (context_ == nullptr) return;
    if (address_ != 0) {
      const cuda::ContextScope scope(driver(), context_);
      calls_.MemFree(address_);
    }
    driver().DevicePrimaryCtxRelease(device_);
  }

  absl::Status Allocate(size_t bytes) {
    if (absl::Status status = Must("cuInit", calls_.Init(0)); !status.ok()) return status;
    if (absl::Status status = Must("cuDeviceGet", driver().DeviceGet(&device_, 0)); !status.ok()) return status;
    absl::Status status = Must("cuDevicePrimaryCtxRetain", driver().DevicePrimaryCtxRetain(&context_, device_));
    if (!status.ok()) return status;
    return Within([&] { return Must("cuMemAlloc", calls_.MemAlloc(&address_, bytes)); });
  }

  std::byte* base() const override { return reinterpret_cast<std::byte*>(address_); }
  absl::Status Write(std::byte* to, const std::byte* from, size_t bytes) const override {
    return Within([&] { return Must("cuMemcpyHtoD", calls_.MemcpyHtoD(AddressOf(to), from, bytes)); });
  }
  absl::Status Read(std::byte* to, const std::byte* from, size_t bytes) const override {
    return Within([&] { return Must("cuMemcpyDtoH", calls_.MemcpyDtoH(to, AddressOf(from), bytes)); });
  }

 private:
  static CUdeviceptr AddressOf(const std::byte* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }
  const cuda::Driver& driver() const { return *calls_.driver; }
  absl::Status Must(const char* call, CUresult result) const { return Must(cuda::Outcome(call, result)); }
  absl::Status Must(const cuda::Outcome& outcome) const {
    if (outcome.ok()) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("--buffers cuda: ", outcome.Describe(driver())));
  }
  template <typename Task>
  absl::Status Within(Task task) const {
    const cuda::ContextScope scope(driver(), context_);
    return scope.outcome().ok() ? task() : Must(scope.outcome());
  }

  const Calls calls_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUdeviceptr address_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GpuMemory>> GpuMemory::Create(size_t bytes) {
  auto calls = Load();
  if (!calls.ok()) return calls.status();
  auto memory = std::make_unique<Memory>(*calls);
  if (absl::Status status = memory->Allocate(bytes); !status.ok()) return status;
  return memory;
}

}  // namespace quarry::bench
