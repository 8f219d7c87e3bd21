#include "server/event_log.h"

#include <algorithm>

#include "common/random.h"

namespace quarry::server {
namespace {

constexpr size_t kEpochBytes = 8;

}  // namespace

EventLog::EventLog(size_t capacity)
    : epoch_(SecureRandomBytes(kEpochBytes)), cleared_(new std::atomic<bool>[kNamespacesPerIndex]()), ring_(capacity) {}

void EventLog::AppendLocked(const BlockEvent& event) {
  BlockEvent& place = ring_[++last_ % ring_.size()];
  place = event;
  place.number = last_;
}

void EventLog::Append(BlockEvent event) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!IsCleared(event.ns)) AppendLocked(event);
}

void EventLog::AppendCleared(uint32_t ns) {
  BlockEvent event;
  event.kind = BlockEvent::Kind::kCleared;
  event.ns = ns;
  std::lock_guard<std::mutex> lock(mutex_);
  if (!cleared_[ns].exchange(true)) AppendLocked(event);
}

uint64_t EventLog::last() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return last_;
}

uint64_t EventLog::Read(uint64_t after, size_t max, std::vector<BlockEvent>* events) const {
  events->clear();
  std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t oldest = last_ - std::min<uint64_t>(last_, ring_.size()) + 1;
  const uint64_t first = std::max(after + 1, oldest);
  for (uint64_t number = first; number <= last_ && events->size() < max; ++number) {
    events->push_back(ring_[number % ring_.size()]);
  }
  return first - (after + 1);
}

void EventLog::Add(Listener* listener) {
  std::lock_guard<std::mutex> lock(listeners_mutex_);
  listeners_.insert(listener);
}

void EventLog::Remove(Listener* listener) {
  std::lock_guard<std::mutex> lock(listeners_mutex_);
  listeners_.erase(listener);
}

void EventLog::Tell() {
  const uint64_t newest = last();
  std::lock_guard<std::mutex> lock(listeners_mutex_);
  if (newest == told_) return;
  told_ = newest;
  for (Listener* listener : listeners_) listener->OnEvents();
}

}  // namespace quarry::server
