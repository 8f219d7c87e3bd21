// The writing side of a disk: an append-only log of records over its extents.
//
// Records go into the active extent, several writes in flight; what is written together is a
// group. When the group is large or old enough, the log's thread waits for its writes, syncs
// the extents, then commits one synced batch to the catalog, and only then do its records
// count. Two groups are under way at most, so whoever appends waits for the disk, and nothing
// piles up.
#ifndef QUARRY_SERVER_SSD_RECORD_LOG_H_
#define QUARRY_SERVER_SSD_RECORD_LOG_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "common/clock.h"
#include "server/ssd/aligned_buffer.h"
#include "server/ssd/catalog.h"
#include "server/ssd/extent_set.h"
#include "server/ssd/io/io_queue.h"
#include "server/ssd/record_table.h"
#include "server/ssd/ssd_owner.h"

namespace quarry::server {

// A record on its way to the disk.
struct LogEntry {
  SpillItem item;  // of a record that is moved without a slot
  uint32_t payload_bytes = 0;
  uint64_t root = 0;
  // Of a record that is moved: where it was, and header and payload.
  bool moved = false;
  RecordPlace from;
  AlignedBuffer bytes;

  // The log's.
  RecordPlace place;
  Extent* extent = nullptr;
  const std::byte* header = nullptr;
  const std::byte* payload = nullptr;
  bool failed = false;
};

struct RecordLogOptions {
  uint32_t disk = 0;  // RecordPlace's
  std::string dir;    // for messages
  uint64_t group_bytes = 0;
  uint32_t inline_bytes = 0;  // payloads up to this size go into the catalog
};

struct RecordLogStats {
  bool writing = true;         // false: stopped by an error, for a while
  std::string last_error;      // empty: there was none
  uint64_t errors = 0;         // that stopped it
  uint64_t groups = 0;         // committed
  uint64_t spilled_bytes = 0;  // in whole pages, headers included
  uint64_t spilled_records = 0;
  uint64_t moved_bytes = 0;
  uint64_t moved_records = 0;
};

// Thread-safe.
class RecordLog {
 public:
  // After an error it writes nothing for so long, then tries again.
  static constexpr int64_t kPauseNs = 10'000'000'000;

  // All outlive the log.
  RecordLog(RecordLogOptions options, RecordTable* records, ExtentSet* extents, Catalog* catalog, IoQueue* io,
            SsdOwner* owner, Clock* clock);
  // What was appended is written and answered first.
  ~RecordLog();

  // Before Start: a namespace that the catalog has, and what index its contents have now.
  void Know(uint32_t catalog_number, const Namespace* ns, uint16_t ns_index);
  void Start();

  bool CanWrite() const;
  // From now on nothing can be appended.
  void StopAppending();
  // Every entry is answered once, by the owner: OnWritten or OnWriteFailed, or OnMoved; one that
  // cannot be moved stays where it is, and nothing is said.
  // At least `spare_extents` are left free. Waits for the disk.
  void Append(std::vector<LogEntry> entries, uint32_t spare_extents);
  // What was appended before is answered when it returns.
  void Flush();

  // The catalog forgets the record, soon. May be called with locks of the owner's held.
  void Remove(const RecordPlace& place);
  // That index is nobody's any more, and all that was written under it is void.
  void ForgetNamespace(uint16_t ns_index);
  void NamespaceChanged(const Namespace& ns);
  struct Contents {
    uint16_t index = 0;
    const Namespace* ns = nullptr;
  };
  // What has that number in the catalog; none: what was written under it is void.
  std::optional<Contents> ContentsOf(uint32_t catalog_number) const;
  // All records of the extent are forgotten when it returns, durably.
  absl::Status Empty(const Extent& extent);
  // Writes nothing for a while.
  void Pause(const absl::Status& why);

  RecordLogStats stats() const;
  uint64_t moved_bytes() const { return moved_bytes_.load(std::memory_order_relaxed); }
  // Of what was appended and is not yet answered.
  uint64_t unanswered_bytes() const { return unanswered_bytes_.load(std::memory_order_relaxed); }

 private:
  struct Group;
  using Change = std::function<void(CatalogBatch*)>;
  using Lock = std::unique_lock<std::mutex>;

  bool IsInlined(const LogEntry& entry) const { return entry.payload_bytes <= options_.inline_bytes; }
  Extent* RoomFor(const LogEntry& entry, uint32_t spare_extents, Lock& lock);
  void PlaceLocked(LogEntry entry, Extent* extent);
  void SubmitRunLocked();
  void OnRunWritten(Group* group, size_t first, size_t end, Extent* extent, int64_t result);
  void CloseGroupLocked();
  uint32_t CatalogNumberLocked(const SpillItem& item);
  void Make(Change change);

  struct Changes {
    std::vector<RecordPlace> removals;
    std::vector<Change> others;
    bool empty() const { return removals.empty() && others.empty(); }
  };
  void CommitLoop();
  std::shared_ptr<Group> NextGroup(Changes* changes);
  bool ChangesAreDue(bool now);
  Changes TakeChanges();
  absl::Status Commit(Group* group, const Changes& changes);
  void TryAgain(Changes changes);
  absl::Status Sync(Group* group);
  void Answer(Group* group, const absl::Status& status);
  void AnswerWritten(LogEntry* entry);
  void AnswerMoved(LogEntry* entry);
  void AnswerFailed(const LogEntry& entry, bool disk_failed);
  // Nobody asks for a record of that extent any more.
  static void Discount(Extent* extent, uint64_t payload_bytes);

  const RecordLogOptions options_;
  RecordTable* const records_;
  ExtentSet* const extents_;
  Catalog* const catalog_;
  IoQueue* const io_;
  SsdOwner* const owner_;
  Clock* const clock_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // The rest is guarded by mutex_, but for what is atomic.
  Extent* active_ = nullptr;
  Extent* active_inlined_ = nullptr;
  std::shared_ptr<Group> group_;               // that entries are added to
  std::deque<std::shared_ptr<Group>> closed_;  // not yet answered
  uint64_t groups_closed_ = 0;
  uint64_t groups_answered_ = 0;
  std::map<uint16_t, uint32_t> catalog_numbers_;  // by index; 0: void
  std::map<uint32_t, Contents> contents_;         // by catalog number
  uint32_t next_catalog_number_ = 1;
  int64_t paused_until_ns_ = 0;
  std::string last_error_;
  bool closed_to_all_ = false;  // StopAppending
  bool stopping_ = false;

  // What goes with the next batch. Guarded by changes_mutex_, which may be taken while others
  // are held.
  std::mutex changes_mutex_;
  std::vector<RecordPlace> removals_;
  std::vector<Change> changes_;
  int64_t changed_at_ns_ = 0;  // when the first of them came

  std::atomic<uint64_t> errors_{0}, committed_groups_{0}, unanswered_bytes_{0};
  std::atomic<uint64_t> spilled_bytes_{0}, spilled_records_{0}, moved_bytes_{0}, moved_records_{0};
  std::thread committer_;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SSD_RECORD_LOG_H_
