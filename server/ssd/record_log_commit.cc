#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/ssd/record_group.h"
#include "server/ssd/record_header.h"

namespace quarry::server {
namespace {

constexpr int64_t kGroupAgeNs = 20'000'000;
// Removals and the like wait so long for a group to go with.
constexpr int64_t kChangeAgeNs = 100'000'000;

ShardKey KeyOf(const SpillItem& item) { return {item.ns_index, item.group, item.shard, item.hash}; }

int64_t WaitFor(IoQueue* io, IoRequest request) {
  std::mutex mutex;
  std::condition_variable ended;
  std::optional<int64_t> result;
  request.done = [&](int64_t moved) {
    std::lock_guard<std::mutex> lock(mutex);
    result = moved;
    ended.notify_one();
  };
  io->Submit(std::move(request));
  std::unique_lock<std::mutex> lock(mutex);
  ended.wait(lock, [&] { return result.has_value(); });
  return *result;
}

}  // namespace

bool RecordLog::ChangesAreDue(bool now) {
  std::lock_guard<std::mutex> lock(changes_mutex_);
  if (removals_.empty() && changes_.empty()) return false;
  return now || clock_->NowNs() >= changed_at_ns_ + kChangeAgeNs;
}

RecordLog::Changes RecordLog::TakeChanges() {
  std::lock_guard<std::mutex> lock(changes_mutex_);
  return {std::exchange(removals_, {}), std::exchange(changes_, {})};
}

void RecordLog::CommitLoop() {
  while (true) {
    Changes changes;
    const std::shared_ptr<Group> group = NextGroup(&changes);
    if (group == nullptr && changes.empty()) return;
    const absl::Status status = Commit(group.get(), changes);
    if (!status.ok()) {
      Pause(status);
      TryAgain(std::move(changes));
    }
    if (group == nullptr) continue;
    Answer(group.get(), status);
    group->headers.clear();
    unanswered_bytes_.fetch_sub(group->bytes, std::memory_order_relaxed);
    std::lock_guard<std::mutex> lock(mutex_);
    closed_.pop_front();
    ++groups_answered_;
    changed_.notify_all();
  }
}

// They go with a later batch. When the log stops there is none: what they would have said is
// found out at the next start, or was removed and comes back.
void RecordLog::TryAgain(Changes changes) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (stopping_) return;
  std::lock_guard<std::mutex> changes_lock(changes_mutex_);
  changes.removals.insert(changes.removals.end(), removals_.begin(), removals_.end());
  std::move(changes_.begin(), changes_.end(), std::back_inserter(changes.others));
  removals_ = std::move(changes.removals);
  changes_ = std::move(changes.others);
  changed_at_ns_ = paused_until_ns_;
}

// The next group whose writes have ended, and what goes with it. Neither: the log stops.
std::shared_ptr<RecordLog::Group> RecordLog::NextGroup(Changes* changes) {
  Lock lock(mutex_);
  const auto ready = [this] { return closed_.empty() ? ChangesAreDue(stopping_) : closed_.front()->open_writes == 0; };
  while (!ready()) {
    // With nothing else to do, what little there is is committed: someone may wait for its memory.
    if (closed_.empty() && group_ != nullptr && (stopping_ || clock_->NowNs() >= group_->opened_ns + kGroupAgeNs)) {
      CloseGroupLocked();
    } else if (stopping_ && closed_.empty()) {
      return nullptr;
    } else {
      changed_.wait_for(lock, std::chrono::milliseconds(10));
    }
  }
  std::shared_ptr<Group> group = closed_.empty() ? nullptr : closed_.front();
  if (group != nullptr) {
    // Gives numbers to namespaces, which are changes too.
    for (LogEntry& entry : group->entries) {
      if (CatalogNumberLocked(entry.item) == 0) entry.failed = true;
    }
  }
  *changes = TakeChanges();
  return group;
}

absl::Status RecordLog::Sync(Group* group) {
  std::set<Extent*> written;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (LogEntry& entry : group->entries) {
      // A kernel says once that a sync failed; the next one succeeds without what was lost.
      entry.failed = entry.failed || entry.extent->sync_failed;
      if (!entry.failed && !entry.extent->inlined) written.insert(entry.extent);
    }
  }
  for (Extent* extent : written) {
    IoRequest sync;
    sync.kind = IoRequest::Kind::kSync;
    sync.fd = extent->fd.get();
    const int64_t result = WaitFor(io_, std::move(sync));
    if (result >= 0) continue;
    std::lock_guard<std::mutex> lock(mutex_);
    extent->bad = true;
    extent->sync_failed = true;
    return absl::ErrnoToStatus(static_cast<int>(-result), absl::StrCat("syncing extent ", extent->number));
  }
  return absl::OkStatus();
}

absl::Status RecordLog::Commit(Group* group, const Changes& changes) {
  CatalogBatch batch;
  for (const RecordPlace& place : changes.removals) batch.Remove(place.extent, place.page, place.inlined != 0);
  for (const Change& change : changes.others) change(&batch);
  if (group != nullptr) {
    if (absl::Status status = Sync(group); !status.ok()) return status;
    for (const LogEntry& entry : group->entries) {
      if (entry.failed) continue;
      CatalogRecord record;
      record.extent = entry.place.extent;
      record.page = entry.place.page;
      {
        std::lock_guard<std::mutex> lock(mutex_);
        record.ns = CatalogNumberLocked(entry.item);
      }
      record.group = entry.item.group;
      record.shard = entry.item.shard;
      record.inlined = entry.place.inlined != 0;
      record.depth = entry.item.depth;
      record.payload_bytes = entry.payload_bytes;
      record.stored_at_ms = entry.item.stored_at_ms;
      record.root = entry.root;
      record.hash = entry.item.hash;
      batch.Put(record);
      if (!record.inlined) continue;
      batch.PutPayload(record.extent, record.page,
                       {reinterpret_cast<const char*>(entry.header), RecordHeaderBytes(entry.payload_bytes)},
                       {reinterpret_cast<const char*>(entry.payload), entry.payload_bytes});
    }
  }
  absl::Status status = catalog_->Commit(&batch, true);
  if (!status.ok()) status.Update(catalog_->Resume());
  if (status.ok() && group != nullptr) committed_groups_.fetch_add(1, std::memory_order_relaxed);
  return status;
}

void RecordLog::Answer(Group* group, const absl::Status& status) {
  for (LogEntry& entry : group->entries) {
    if (!status.ok() || entry.failed) {
      AnswerFailed(entry, true);
    } else if (entry.moved) {
      AnswerMoved(&entry);
    } else {
      AnswerWritten(&entry);
    }
    entry.item.slot = SlotRef();
  }
}

void RecordLog::AnswerFailed(const LogEntry& entry, bool disk_failed) {
  if (entry.extent != nullptr) Discount(entry.extent, entry.payload_bytes);
  if (!entry.moved) owner_->OnWriteFailed(entry.item, disk_failed);
}

void RecordLog::Discount(Extent* extent, uint64_t payload_bytes) {
  extent->live_bytes.fetch_sub(RecordBytes(payload_bytes), std::memory_order_relaxed);
  extent->live_records.fetch_sub(1, std::memory_order_relaxed);
}

void RecordLog::AnswerWritten(LogEntry* entry) {
  spilled_bytes_.fetch_add(RecordBytes(entry->payload_bytes), std::memory_order_relaxed);
  spilled_records_.fetch_add(1, std::memory_order_relaxed);
  const uint32_t record = records_->Add(entry->place, entry->payload_bytes);
  if (record != kNoRecord && owner_->OnWritten(entry->item, record)) return;
  Discount(entry->extent, entry->payload_bytes);
  Remove(entry->place);
  if (record == kNoRecord) {
    owner_->OnWriteFailed(entry->item, false);
  } else {
    records_->Free(record);
  }
}

void RecordLog::AnswerMoved(LogEntry* entry) {
  moved_bytes_.fetch_add(RecordBytes(entry->payload_bytes), std::memory_order_relaxed);
  moved_records_.fetch_add(1, std::memory_order_relaxed);
  if (owner_->OnMoved(KeyOf(entry->item), entry->from, entry->place)) {
    Discount(extents_->Find(entry->from.extent), entry->payload_bytes);
    return;
  }
  Discount(entry->extent, entry->payload_bytes);
  Remove(entry->place);
}

}  // namespace quarry::server
