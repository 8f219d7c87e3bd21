#include "common/transport/shm/exposures.h"

#include <utility>

namespace quarry::transport::shm {

bool Exposures::Expose(uint64_t request, std::shared_ptr<ExposedRequest> exposed, std::vector<ItemRecord> items,
                       absl::Span<const Descriptor> descriptors, bool by_stream) {
  std::shared_ptr<ExposedRequest> replaced;  // ends without the lock
  // Known here before the server can see it.
  {
    std::lock_guard lock(mutex_);
    Entry& entry = entries_[request];
    // A number that is used again, which no client does, stands for what came last.
    if (entry.slot.has_value() && board_->request_gate(*entry.slot).Withdraw()) board_->Free(*entry.slot);
    replaced = std::move(entry.exposed);
    entry = Entry{};
    entry.exposed = std::move(exposed);
    entry.by_stream = by_stream;
  }
  const auto slot = board_->Expose(request, std::move(items), descriptors);
  std::lock_guard lock(mutex_);
  Entry& entry = entries_[request];
  entry.slot = slot;
  if (slot.has_value()) return true;
  entry.by_stream = true;
  board_->CountElsewhere(1);
  return false;
}

std::shared_ptr<ExposedRequest> Exposures::BeginUse(uint64_t request) {
  std::lock_guard lock(mutex_);
  auto it = entries_.find(request);
  if (it == entries_.end() || it->second.withdrawn) return nullptr;
  ++it->second.uses;
  return it->second.exposed;
}

Exposures::Ended Exposures::EndIfUnused(Map::iterator it) {
  Entry& entry = it->second;
  if (!entry.withdrawn || entry.uses > 0 || entry.at_server || entry.by_stream) return {};
  if (entry.slot.has_value()) {
    board_->Free(*entry.slot);
  } else {
    board_->CountElsewhere(-1);
  }
  Ended ended{std::move(entry.exposed), std::move(entry.released)};
  entries_.erase(it);
  return ended;
}

void Exposures::Change(uint64_t request, const std::function<void(Entry&)>& change) {
  Ended ended;
  {
    std::lock_guard lock(mutex_);
    auto it = entries_.find(request);
    if (it == entries_.end()) return;
    change(it->second);
    ended = EndIfUnused(it);
  }
  if (ended.released) ended.released();
}

void Exposures::EndUse(uint64_t request) {
  Change(request, [](Entry& entry) { --entry.uses; });
}

bool Exposures::ByStream(uint64_t request) const {
  std::lock_guard lock(mutex_);
  auto it = entries_.find(request);
  return it != entries_.end() && it->second.by_stream;
}

void Exposures::StreamsReleased(uint64_t request) {
  Change(request, [](Entry& entry) { entry.by_stream = false; });
}

void Exposures::ServerReleased(uint64_t request) {
  Change(request, [this](Entry& entry) {
    if (entry.at_server) entry.at_server = board_->request_gate(*entry.slot).used();
  });
}

Release Exposures::Withdraw(uint64_t request, std::function<void()> released) {
  Ended ended;  // declared first: it ends without the lock
  std::lock_guard lock(mutex_);
  auto it = entries_.find(request);
  if (it == entries_.end()) return Release::kReleased;
  Entry& entry = it->second;
  entry.withdrawn = true;
  entry.at_server = entry.slot.has_value() && !board_->request_gate(*entry.slot).Withdraw();
  if (entry.uses == 0 && !entry.at_server && !entry.by_stream) {
    ended = EndIfUnused(it);
    return Release::kReleased;
  }
  entry.released = std::move(released);
  return Release::kHeld;
}

void Exposures::ReleaseUnused(bool server_gone) {
  std::vector<Ended> all;
  {
    std::lock_guard lock(mutex_);
    for (auto it = entries_.begin(); it != entries_.end();) {
      const auto next = std::next(it);
      Entry& entry = it->second;
      if (entry.at_server) entry.at_server = !server_gone && board_->request_gate(*entry.slot).used();
      all.push_back(EndIfUnused(it));
      it = next;
    }
  }
  for (const Ended& ended : all) {
    if (ended.released) ended.released();
  }
}

bool Exposures::CloseGates() {
  bool used = false;
  std::lock_guard lock(mutex_);
  for (auto& [request, entry] : entries_) {
    if (entry.slot.has_value() && !board_->request_gate(*entry.slot).Withdraw()) used = true;
  }
  return used;
}

void Exposures::Clear() {
  Map ended;
  {
    std::lock_guard lock(mutex_);
    ended.swap(entries_);
  }
  for (auto& [request, entry] : ended) {
    if (entry.withdrawn && entry.released) entry.released();
  }
}

}  // namespace quarry::transport::shm
