#include "common/transport/exposed_table.h"

#include <utility>

namespace quarry::transport {

void ExposedTable::Expose(uint64_t request, std::shared_ptr<ExposedRequest> exposed) {
  std::lock_guard lock(mutex_);
  entries_[request].exposed = std::move(exposed);
}

std::shared_ptr<ExposedRequest> ExposedTable::BeginUse(uint64_t request) {
  std::lock_guard lock(mutex_);
  auto it = entries_.find(request);
  if (it == entries_.end() || it->second.exposed == nullptr) return nullptr;
  ++it->second.uses;
  return it->second.exposed;
}

void ExposedTable::EndUse(uint64_t request) {
  std::function<void()> released;
  {
    std::lock_guard lock(mutex_);
    auto it = entries_.find(request);
    Entry& entry = it->second;
    if (--entry.uses > 0 || entry.exposed != nullptr) return;
    released = std::move(entry.released);
    entries_.erase(it);
  }
  if (released) released();
}

void ExposedTable::Withdraw(uint64_t request) {
  std::shared_ptr<ExposedRequest> exposed;  // declared first: it ends without the lock
  std::lock_guard lock(mutex_);
  auto it = entries_.find(request);
  if (it == entries_.end()) return;
  exposed = std::exchange(it->second.exposed, nullptr);
  if (it->second.uses == 0) entries_.erase(it);
}

Release ExposedTable::ReleaseWhenUnused(uint64_t request, std::function<void()> released) {
  std::lock_guard lock(mutex_);
  auto it = entries_.find(request);
  if (it == entries_.end()) return Release::kReleased;
  it->second.released = std::move(released);
  return Release::kHeld;
}

}  // namespace quarry::transport
