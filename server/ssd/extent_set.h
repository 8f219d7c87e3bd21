// The extents of one disk: which there are, which is written to, which goes next.
#ifndef QUARRY_SERVER_SSD_EXTENT_SET_H_
#define QUARRY_SERVER_SSD_EXTENT_SET_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/ssd/extent_files.h"

namespace quarry::server {

struct Extent {
  enum class State : uint8_t { kFree, kActive, kSealed, kReclaiming };

  uint32_t number = 0;
  bool inlined = false;  // no file: the catalog has the payloads
  uint64_t bytes = 0;    // its capacity
  UniqueFd fd;
  State state = State::kFree;
  bool bad = false;                     // an IO of it failed: not written to any more
  bool sync_failed = false;             // what had not been synced by then never counts
  uint64_t generation = 0;              // of what is in it
  uint64_t end = 0;                     // where the next record goes, bytes
  uint32_t next_page = 0;               // of an inline one
  uint32_t began_at = 0;                // when the first record was written, in units of SsdTier::Now
  std::atomic<uint64_t> live_bytes{0};  // of records that someone may ask for
  std::atomic<uint64_t> live_records{0};
  std::atomic<uint32_t> readers{0};  // while there are any, nothing is written over
};

// Thread-safe. An extent that was taken belongs to who took it until Seal; its atomic members
// are anybody's. It stays where it is as long as there is a record in it.
class ExtentSet {
 public:
  // All extents together have at most `max_bytes`, each new one `extent_bytes`.
  ExtentSet(std::unique_ptr<ExtentFiles> files, uint64_t max_bytes, uint64_t extent_bytes);

  // An extent that was there at the start, as sealed; its `end` is the caller's to set. With
  // no bytes, thus no file, it is an inline one.
  // OutOfRange: its number is higher than this set has room for.
  absl::StatusOr<Extent*> Restore(uint32_t number, uint64_t generation, uint64_t file_bytes);
  // Forgets an extent and removes its file.
  absl::Status Discard(uint32_t number);
  // Files that no extent has are removed.
  absl::Status RemoveStrays();

  // An extent to write to, its generation new. At least `spare` extents must be left besides.
  // nullptr: none is free. ResourceExhausted and others: no file could be made.
  absl::StatusOr<Extent*> Take(bool inlined, uint32_t spare, uint32_t now);
  // A restored one that has room left is gone on with.
  Extent* TakeRestored(bool inlined);
  // Nothing more is written to it.
  void Seal(Extent* extent);
  // Nothing is in it any more, and nobody reads it: free, or discarded if it is bad or the
  // set is too large.
  void Release(Extent* extent);

  // The next to be emptied: one that is nearly empty, else the oldest. nullptr: none is sealed.
  Extent* TakeVictim();
  // Extents that could be taken now.
  uint32_t free() const;
  // Waits until more than `spare` are free, or the time is over, or Wake was called.
  void WaitForFree(uint32_t spare, std::chrono::milliseconds most);
  // Waits while more than `spare` are free.
  void WaitForFewer(uint32_t spare, std::chrono::milliseconds most);
  void Wake();
  // Without the mutex, for whoever knows that there is a record in it. nullptr: no such extent.
  Extent* Find(uint32_t number) const {
    return number < max_numbers_ ? by_number_[number].load(std::memory_order_acquire) : nullptr;
  }
  // visit(const Extent&), with the mutex held.
  template <typename Visitor>
  void ForEach(Visitor&& visit) const {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [number, extent] : extents_) visit(*extent);
  }
  uint64_t extent_bytes() const { return extent_bytes_; }
  ExtentFiles& files() { return *files_; }
  bool direct() const { return files_->direct(); }

 private:
  void AddLocked(std::unique_ptr<Extent> extent);
  uint32_t NewNumberLocked() const;
  uint32_t FreeLocked() const;
  absl::Status DiscardLocked(uint32_t number);

  const std::unique_ptr<ExtentFiles> files_;
  const uint64_t max_bytes_;
  const uint64_t extent_bytes_;
  const uint32_t max_numbers_;
  const std::unique_ptr<std::atomic<Extent*>[]> by_number_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // The rest is guarded by mutex_.
  uint64_t bytes_ = 0;
  uint64_t generation_ = 0;
  uint64_t wakes_ = 0;
  std::map<uint32_t, std::unique_ptr<Extent>> extents_;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SSD_EXTENT_SET_H_
