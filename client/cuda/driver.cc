#include "client/cuda/driver.h"

#include <dlfcn.h>

#include <mutex>

namespace quarry::cuda {
namespace {

template <typename Function>
void Resolve(void* library, const char* symbol, Function* function, std::string* missing) {
  *function = reinterpret_cast<Function>(dlsym(library, symbol));
  if (*function == nullptr && missing->empty()) *missing = symbol;
}

// Of that version of CUDA; nullptr where the driver has none.
template <typename Function>
void ResolveOf(const Driver& driver, const char* name, int version, Function* function) {
  void* found = nullptr;
  CUdriverProcAddressQueryResult how{};
  const CUresult result = driver.GetProcAddress(name, &found, version, CU_GET_PROC_ADDRESS_DEFAULT, &how);
  const bool there = result == CUDA_SUCCESS && how == CU_GET_PROC_ADDRESS_SUCCESS;
  *function = there ? reinterpret_cast<Function>(found) : nullptr;
}

const Driver* Load(void* library) {
  auto* driver = new Driver();  // for the life of the process, as the library
#define QUARRY_CUDA_RESOLVE(name, symbol, type) Resolve(library, symbol, &driver->name, &driver->missing);
  QUARRY_CUDA_FUNCTIONS(QUARRY_CUDA_RESOLVE)
#undef QUARRY_CUDA_RESOLVE
  if (driver->GetProcAddress == nullptr) return driver;
  ResolveOf(*driver, "cuFuncLoad", 12040, &driver->FuncLoad);
  // Its signature has changed: a plain symbol of the name may be either.
  ResolveOf(*driver, "cuMemcpyBatchAsync", 12080, &driver->MemcpyBatchAsync);
  return driver;
}

}  // namespace

const Driver* Driver::Find() {
  static std::mutex mutex;
  static const Driver* driver = nullptr;
  std::lock_guard lock(mutex);
  if (driver == nullptr) {
    if (void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD); library != nullptr) driver = Load(library);
  }
  return driver;
}

std::string Outcome::Describe(const Driver& driver) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (driver.GetErrorName == nullptr || driver.GetErrorName(result_, &name) != CUDA_SUCCESS) name = nullptr;
  if (driver.GetErrorString == nullptr || driver.GetErrorString(result_, &text) != CUDA_SUCCESS) text = nullptr;
  std::string description = std::string(call_) + ": ";
  description += name != nullptr ? name : "CUDA error " + std::to_string(static_cast<int>(result_));
  if (text != nullptr) description += std::string(" (") + text + ")";
  return description;
}

ContextScope::ContextScope(const Driver& driver, CUcontext context)
    : driver_(driver), outcome_("cuCtxPushCurrent", driver.CtxPushCurrent(context)) {
  if (!outcome_.ok()) return;
  outcome_ = Outcome("cuThreadExchangeStreamCaptureMode", driver.ThreadExchangeStreamCaptureMode(&mode_));
  CUcontext popped = nullptr;
  if (!outcome_.ok()) driver.CtxPopCurrent(&popped);
}

ContextScope::~ContextScope() {
  if (!outcome_.ok()) return;
  CUcontext popped = nullptr;
  // Both fail only where the driver is shutting down.
  driver_.ThreadExchangeStreamCaptureMode(&mode_);
  driver_.CtxPopCurrent(&popped);
}

}  // namespace quarry::cuda
