// The registered ranges of a client.
#ifndef QUARRY_CLIENT_MEMORY_REGISTRY_H_
#define QUARRY_CLIENT_MEMORY_REGISTRY_H_

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "quarry/segments.h"

namespace quarry {

inline constexpr size_t kMaxRegisteredRanges = 4096;

// Thread-safe. Changes copy the list, so that validation reads a snapshot without a lock.
class MemoryRegistry {
 public:
  using Ranges = std::vector<MemoryRange>;  // sorted by base, disjoint

  // InvalidArgument: empty, beyond the address space, or overlapping a registered range.
  // ResourceExhausted: kMaxRegisteredRanges are registered.
  absl::Status Add(MemoryRange range);
  void Remove(MemoryRange range);
  std::shared_ptr<const Ranges> Snapshot() const;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Ranges> ranges_ = std::make_shared<Ranges>();  // guarded by mutex_
};

}  // namespace quarry

#endif  // QUARRY_CLIENT_MEMORY_REGISTRY_H_
