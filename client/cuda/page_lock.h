// Host memory that GPUs reach: page-locked, for all devices alike.
#ifndef QUARRY_CLIENT_CUDA_PAGE_LOCK_H_
#define QUARRY_CLIENT_CUDA_PAGE_LOCK_H_

#include <cstddef>

#include "client/cuda/driver.h"

namespace quarry::cuda {

// Locks memory of somebody else's for its life.
class PageLock {
 public:
  PageLock() = default;
  ~PageLock() { Unlock(); }
  PageLock(const PageLock&) = delete;
  PageLock& operator=(const PageLock&) = delete;

  // Once. `context` stays retained for the life of this.
  Outcome Lock(const Driver& driver, CUcontext context, void* base, size_t bytes);
  // Nothing happens when it is not locked.
  void Unlock();

 private:
  const Driver* driver_ = nullptr;
  CUcontext context_ = nullptr;
  void* base_ = nullptr;
};

// Memory of its own, locked: private to the process.
class LockedMemory {
 public:
  LockedMemory() = default;
  ~LockedMemory() { Free(); }
  LockedMemory(const LockedMemory&) = delete;
  LockedMemory& operator=(const LockedMemory&) = delete;

  // Once.
  Outcome Allocate(const Driver& driver, CUcontext context, size_t bytes);
  // Nothing happens when there is none.
  void Free();
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  PageLock lock_;
};

}  // namespace quarry::cuda

#endif  // QUARRY_CLIENT_CUDA_PAGE_LOCK_H_
