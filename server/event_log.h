// What happened to blocks lately, numbered, for whoever watches.
#ifndef QUARRY_SERVER_EVENT_LOG_H_
#define QUARRY_SERVER_EVENT_LOG_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/strings/string_view.h"
#include "quarry/block.h"
#include "quarry/model_spec.h"
#include "server/namespaces.h"

namespace quarry::server {

struct BlockEvent {
  enum class Kind : uint8_t { kStored, kRemoved, kCleared };

  Kind kind = Kind::kStored;
  uint32_t ns = 0;  // index
  uint8_t group = 0;
  MissCause cause = MissCause::kNone;   // of kRemoved
  uint64_t depth = 0;                   // of kStored: index in its chain
  uint64_t bytes = 0;                   // payload of all shards
  BlockState tier = BlockState::kDram;  // of kStored
  uint64_t number = 0;                  // given by the log

  void SetHash(absl::string_view hash) { hash_bytes_ = Set(hash, hash_); }
  void SetParent(absl::string_view parent) { parent_bytes_ = Set(parent, parent_); }
  absl::string_view hash() const { return {hash_, hash_bytes_}; }
  absl::string_view parent() const { return {parent_, parent_bytes_}; }

 private:
  static uint8_t Set(absl::string_view value, char (&to)[kMaxHashBytes]) {
    return static_cast<uint8_t>(value.copy(to, sizeof to));
  }

  // In place: an event costs no allocation.
  uint8_t hash_bytes_ = 0;
  uint8_t parent_bytes_ = 0;
  char hash_[kMaxHashBytes];
  char parent_[kMaxHashBytes];
};

// A ring: the newest events push out the oldest, however many watch and however slowly, so
// watching costs the node a bounded piece of memory and a copy for each event. Thread-safe;
// Append may be called with any lock of the block store held.
class EventLog {
 public:
  // Wakes whoever waits for events.
  class Listener {
   public:
    virtual ~Listener() = default;
    // There are events that Read has not given yet. Must not call Add or Remove.
    virtual void OnEvents() = 0;
  };

  explicit EventLog(size_t capacity);

  // Numbers it. Of a namespace that was cleared under its index there are no more events.
  void Append(BlockEvent event);
  // The last event of that index: the namespace is empty.
  void AppendCleared(uint32_t ns);
  bool IsCleared(uint32_t ns) const { return cleared_[ns].load(std::memory_order_relaxed); }

  // Unguessable enough to tell one life of the daemon from another.
  const std::string& epoch() const { return epoch_; }
  // The number of the newest event; 0: none yet.
  uint64_t last() const;
  // At most `max` events behind the one numbered `after`, oldest first. Returns how many
  // before them are gone already.
  uint64_t Read(uint64_t after, size_t max, std::vector<BlockEvent>* events) const;

  void Add(Listener* listener);
  // `listener` is not called any more when this returns.
  void Remove(Listener* listener);
  // Calls the listeners if anything was appended since the last call. Called every few tens
  // of milliseconds: so a burst of events wakes a watcher once, and nobody who stores or
  // evicts a block pays for it.
  void Tell();

 private:
  void AppendLocked(const BlockEvent& event);

  const std::string epoch_;
  const std::unique_ptr<std::atomic<bool>[]> cleared_;  // by index; changed with the mutex held

  mutable std::mutex mutex_;
  std::vector<BlockEvent> ring_;  // event n lies at n % size
  uint64_t last_ = 0;

  std::mutex listeners_mutex_;
  std::unordered_set<Listener*> listeners_;
  uint64_t told_ = 0;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_EVENT_LOG_H_
