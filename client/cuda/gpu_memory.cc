// Which memory is a GPU's.
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cuda/driver.h"
#include "client/cuda/staging.h"
#include "client/gpu_transfers.h"

namespace quarry {
namespace {

constexpr int kHost = -1;

// The GPU in whose memory the byte is, or kHost.
absl::StatusOr<int> PlaceOf(const cuda::Driver& driver, const std::byte* byte) {
  CUmemorytype type{};  // stays so for memory that CUDA does not know
  unsigned managed = 0;
  int gpu = kHost;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void* values[] = {&type, &managed, &gpu};
  const cuda::Outcome asked(
      "cuPointerGetAttributes",
      driver.PointerGetAttributes(std::size(attributes), attributes, values, reinterpret_cast<CUdeviceptr>(byte)));
  // Nobody has used CUDA here, so nobody has memory of it.
  if (asked.result() == CUDA_ERROR_NOT_INITIALIZED) return kHost;
  if (!asked.ok()) return absl::InternalError(asked.Describe(driver));
  return type == CU_MEMORYTYPE_DEVICE && managed == 0 ? gpu : kHost;
}

}  // namespace

absl::StatusOr<std::optional<int>> GpuOf(MemoryRange range) {
  const cuda::Driver* driver = cuda::Driver::Find();
  // What no range can be is said where ranges are registered.
  if (driver == nullptr || driver->PointerGetAttributes == nullptr || range.bytes == 0) return std::nullopt;
  const auto first = PlaceOf(*driver, range.base);
  if (!first.ok()) return first.status();
  const auto last = PlaceOf(*driver, range.base + (range.bytes - 1));
  if (!last.ok()) return last.status();
  if (*first != *last) {
    return absl::InvalidArgumentError(
        "base: the range begins and ends in memory of different kinds; a range lies in host memory or in that of one "
        "GPU");
  }
  if (*first == kHost) return std::nullopt;
  if (!driver->missing.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("GPU memory: libcuda.so.1 lacks ", driver->missing));
  }
  return *first;
}

absl::Status CheckAllocated(const cuda::Driver& driver, CUcontext context, MemoryRange range, int gpu) {
  const cuda::ContextScope scope(driver, context);
  if (!scope.outcome().ok()) return absl::InternalError(scope.outcome().Describe(driver));
  const auto begin = reinterpret_cast<CUdeviceptr>(range.base);
  // Memory that grows is mapped in parts, one behind the other.
  for (CUdeviceptr at = begin; at - begin < range.bytes;) {
    CUdeviceptr base = 0;
    size_t bytes = 0;
    const cuda::Outcome asked("cuMemGetAddressRange", driver.MemGetAddressRange(&base, &bytes, at));
    const auto place = PlaceOf(driver, reinterpret_cast<const std::byte*>(at));
    if (!place.ok()) return place.status();
    if (!asked.ok() || base > at || base + bytes <= at || *place != gpu) {
      return absl::InvalidArgumentError(absl::StrCat("bytes: ", range.bytes, ", but only ", at - begin,
                                                     " from base on are allocated in the memory of GPU ", gpu));
    }
    at = base + bytes;
  }
  return absl::OkStatus();
}

}  // namespace quarry
