#include "client/cuda/page_lock.h"

#include <sys/mman.h>

namespace quarry::cuda {

Outcome PageLock::Lock(const Driver& driver, CUcontext context, void* base, size_t bytes) {
  const ContextScope scope(driver, context);
  if (!scope.outcome().ok()) return scope.outcome();
  const Outcome locked("cuMemHostRegister",
                       driver.MemHostRegister(base, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
  if (!locked.ok()) return locked;
  driver_ = &driver;
  context_ = context;
  base_ = base;
  return {};
}

void PageLock::Unlock() {
  if (base_ == nullptr) return;
  const ContextScope scope(*driver_, context_);
  // Fails where the context is beyond repair, which has unlocked it as well.
  if (scope.outcome().ok()) driver_->MemHostUnregister(base_);
  base_ = nullptr;
}

Outcome LockedMemory::Allocate(const Driver& driver, CUcontext context, size_t bytes) {
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return {"mmap of page-locked memory", CUDA_ERROR_OUT_OF_MEMORY};
  data_ = static_cast<std::byte*>(mapped);
  bytes_ = bytes;
  return lock_.Lock(driver, context, data_, bytes);
}

void LockedMemory::Free() {
  if (data_ == nullptr) return;
  lock_.Unlock();
  munmap(data_, bytes_);
  data_ = nullptr;
}

}  // namespace quarry::cuda
