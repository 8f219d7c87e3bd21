#include "server/ssd/record_log.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checksum.h"
#include "server/ssd/record_group.h"
#include "server/ssd/record_header.h"
#include "server/ssd/use_time.h"

namespace quarry::server {
namespace {

constexpr size_t kMaxGroupsUnderWay = 2;
// Neighbours are written together up to this size.
constexpr uint64_t kMaxRunBytes = 2 << 20;
constexpr size_t kMaxRunParts = 256;
constexpr std::chrono::milliseconds kWaitForFree{100};

CatalogNamespace InCatalog(const Namespace& ns, uint32_t number) {
  return {number, ns.tenant, ns.name, ns.spec, ns.ttl_ms.load(std::memory_order_relaxed)};
}

}  // namespace

RecordLog::RecordLog(RecordLogOptions options, RecordTable* records, ExtentSet* extents, Catalog* catalog, IoQueue* io,
                     SsdOwner* owner, Clock* clock)
    : options_(std::move(options)),
      records_(records),
      extents_(extents),
      catalog_(catalog),
      io_(io),
      owner_(owner),
      clock_(clock) {}

RecordLog::~RecordLog() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    closed_to_all_ = true;
    stopping_ = true;
    changed_.notify_all();
  }
  if (committer_.joinable()) committer_.join();
}

void RecordLog::Start() {
  active_ = extents_->TakeRestored(false);
  committer_ = std::thread([this] { CommitLoop(); });
}

void RecordLog::Know(uint32_t catalog_number, const Namespace* ns, uint16_t ns_index) {
  std::lock_guard<std::mutex> lock(mutex_);
  catalog_numbers_[ns_index] = catalog_number;
  contents_[catalog_number] = {ns_index, ns};
  next_catalog_number_ = std::max(next_catalog_number_, catalog_number + 1);
}

bool RecordLog::CanWrite() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return !closed_to_all_ && clock_->NowNs() >= paused_until_ns_;
}

void RecordLog::StopAppending() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    closed_to_all_ = true;
  }
  extents_->Wake();
}

void RecordLog::Pause(const absl::Status& why) {
  std::lock_guard<std::mutex> lock(mutex_);
  errors_.fetch_add(1, std::memory_order_relaxed);
  const int64_t now_ns = clock_->NowNs();
  if (now_ns >= paused_until_ns_) spdlog::warn("{}: writes nothing for 10 s: {}", options_.dir, why.ToString());
  paused_until_ns_ = now_ns + kPauseNs;
  last_error_ = why.ToString();
  changed_.notify_all();
}

// ------------------------------------------------------------ appending

void RecordLog::Append(std::vector<LogEntry> entries, uint32_t spare_extents) {
  std::vector<LogEntry> failed;
  bool paused;
  {
    Lock lock(mutex_);
    for (LogEntry& entry : entries) {
      Extent* extent = RoomFor(entry, spare_extents, lock);
      if (extent == nullptr) {
        failed.push_back(std::move(entry));
      } else {
        PlaceLocked(std::move(entry), extent);
        if (group_->bytes >= options_.group_bytes) CloseGroupLocked();
      }
    }
    if (group_ != nullptr) SubmitRunLocked();
    changed_.notify_all();
    changed_.wait(lock, [this] { return closed_.size() < kMaxGroupsUnderWay; });
    paused = clock_->NowNs() < paused_until_ns_;
  }
  for (const LogEntry& entry : failed) AnswerFailed(entry, paused);
}

// nullptr: there is none, or nothing is written just now. What is under way goes on meanwhile.
Extent* RecordLog::RoomFor(const LogEntry& entry, uint32_t spare_extents, Lock& lock) {
  const uint64_t bytes = RecordBytes(entry.payload_bytes);
  if (bytes > extents_->extent_bytes()) return nullptr;
  Extent*& active = IsInlined(entry) ? active_inlined_ : active_;
  while (true) {
    if (closed_to_all_ || clock_->NowNs() < paused_until_ns_) return nullptr;
    if (active != nullptr && !active->bad && active->end + bytes <= active->bytes) return active;
    if (group_ != nullptr) SubmitRunLocked();
    if (Extent* full = std::exchange(active, nullptr); full != nullptr) extents_->Seal(full);
    // Making a file takes its time.
    lock.unlock();
    absl::StatusOr<Extent*> taken = extents_->Take(IsInlined(entry), spare_extents, UseTimeNow(*clock_));
    if (!taken.ok()) Pause(taken.status());
    lock.lock();
    if (!taken.ok()) return nullptr;
    if (Extent* extent = *taken; extent != nullptr) {
      Make([made = CatalogExtent{extent->number, extent->generation}](CatalogBatch* b) { b->Put(made); });
      if (active != nullptr) extents_->Seal(active);  // another thread has taken one meanwhile
      active = extent;
      continue;
    }
    // What empties extents may itself wait for this group.
    if (group_ != nullptr) CloseGroupLocked();
    lock.unlock();
    extents_->WaitForFree(spare_extents, kWaitForFree);
    lock.lock();
  }
}

void RecordLog::PlaceLocked(LogEntry entry, Extent* extent) {
  if (group_ == nullptr) {
    group_ = std::make_shared<Group>();
    group_->opened_ns = clock_->NowNs();
  }
  Group& group = *group_;
  const uint64_t bytes = RecordBytes(entry.payload_bytes);
  const uint64_t header_bytes = RecordHeaderBytes(entry.payload_bytes);
  entry.extent = extent;
  entry.place.disk = options_.disk;
  entry.place.extent = extent->number;
  entry.place.inlined = extent->inlined ? 1 : 0;
  entry.place.page = extent->inlined ? extent->next_page++ : static_cast<uint32_t>(extent->end / kPageBytes);

  std::byte* header;
  std::byte* payload;
  if (entry.moved) {
    header = entry.bytes.data();
    payload = header + header_bytes;
    SetGeneration(extent->generation, header);
  } else {
    header = group.headers.emplace_back(header_bytes).data();
    payload = entry.item.slot.payload();
    const SlotHeader& slot = *entry.item.slot.header();
    EncodeRecordHeader({{entry.item.ns->id, entry.item.group, entry.item.shard, entry.item.hash},
                        extent->generation,
                        entry.payload_bytes,
                        entry.root,
                        absl::MakeConstSpan(slot.sums, ChunkCount(entry.payload_bytes))},
                       header);
  }
  entry.header = header;
  entry.payload = payload;
  if (!extent->inlined) {
    const bool neighbour = !group.run.parts.empty() && group.run.fd == extent->fd.get() &&
                           group.run.offset + group.run_bytes == extent->end &&
                           group.run_bytes + bytes <= kMaxRunBytes && group.run.parts.size() + 2 <= kMaxRunParts;
    if (!neighbour) SubmitRunLocked();
    if (group.run.parts.empty()) {
      group.run.kind = IoRequest::Kind::kWrite;
      group.run.fd = extent->fd.get();
      group.run.offset = extent->end;
      group.run_first = group.entries.size();
      group.run_bytes = 0;
    }
    group.run.parts.push_back({header, header_bytes});
    group.run.parts.push_back({payload, InWholePages(entry.payload_bytes)});
    group.run_bytes += bytes;
  }
  extent->end += bytes;
  // Before anyone may ask for it: else an extent that was just filled would seem empty.
  extent->live_bytes.fetch_add(bytes, std::memory_order_relaxed);
  extent->live_records.fetch_add(1, std::memory_order_relaxed);
  group.bytes += bytes;
  unanswered_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  group.entries.push_back(std::move(entry));
}

void RecordLog::SubmitRunLocked() {
  Group& group = *group_;
  if (group.run.parts.empty()) return;
  IoRequest run = std::exchange(group.run, IoRequest());
  ++group.open_writes;
  run.done = [this, held = group_, first = group.run_first, end = group.entries.size(), bytes = group.run_bytes,
              extent = group.entries.back().extent](int64_t result) {
    OnRunWritten(held.get(), first, end, extent, result == static_cast<int64_t>(bytes) ? 0 : result);
  };
  io_->Submit(std::move(run));
}

// On a thread of the engine.
void RecordLog::OnRunWritten(Group* group, size_t first, size_t end, Extent* extent, int64_t result) {
  const int error = static_cast<int>(-result);
  if (error != 0) Pause(absl::ErrnoToStatus(error, absl::StrCat("writing to extent ", extent->number)));
  std::lock_guard<std::mutex> lock(mutex_);
  if (error != 0) {
    extent->bad = true;
    for (size_t i = first; i < end; ++i) {
      if (group->entries[i].extent == extent) group->entries[i].failed = true;
    }
  }
  if (--group->open_writes == 0) changed_.notify_all();
}

void RecordLog::CloseGroupLocked() {
  SubmitRunLocked();
  closed_.push_back(std::exchange(group_, nullptr));
  ++groups_closed_;
  changed_.notify_all();
}

void RecordLog::Flush() {
  Lock lock(mutex_);
  if (group_ != nullptr) CloseGroupLocked();
  const uint64_t wanted = groups_closed_;
  changed_.wait(lock, [&] { return groups_answered_ >= wanted; });
}

// ------------------------------------------------------------ what goes with a batch

void RecordLog::Make(Change change) {
  std::lock_guard<std::mutex> lock(changes_mutex_);
  if (removals_.empty() && changes_.empty()) changed_at_ns_ = clock_->NowNs();
  changes_.push_back(std::move(change));
}

void RecordLog::Remove(const RecordPlace& place) {
  std::lock_guard<std::mutex> lock(changes_mutex_);
  if (removals_.empty() && changes_.empty()) changed_at_ns_ = clock_->NowNs();
  removals_.push_back(place);
}

void RecordLog::ForgetNamespace(uint16_t ns_index) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = catalog_numbers_.find(ns_index);
  if (it == catalog_numbers_.end()) return;
  Make([number = it->second](CatalogBatch* batch) { batch->RemoveNamespace(number); });
  contents_.erase(it->second);
  // What is still to be written under that index must not find a new number.
  it->second = 0;
}

void RecordLog::NamespaceChanged(const Namespace& ns) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = catalog_numbers_.find(static_cast<uint16_t>(ns.index));
  if (it == catalog_numbers_.end() || it->second == 0) return;
  Make([changed = InCatalog(ns, it->second)](CatalogBatch* batch) { batch->Put(changed); });
}

std::optional<RecordLog::Contents> RecordLog::ContentsOf(uint32_t catalog_number) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = contents_.find(catalog_number);
  if (it == contents_.end()) return std::nullopt;
  return it->second;
}

// 0: the contents are void.
uint32_t RecordLog::CatalogNumberLocked(const SpillItem& item) {
  const auto [it, added] = catalog_numbers_.try_emplace(item.ns_index, next_catalog_number_);
  if (added) {
    ++next_catalog_number_;
    contents_[it->second] = {item.ns_index, item.ns};
    Make([ns = InCatalog(*item.ns, it->second)](CatalogBatch* batch) { batch->Put(ns); });
  }
  return it->second;
}

absl::Status RecordLog::Empty(const Extent& extent) {
  CatalogBatch batch;
  batch.Empty(extent.number);
  return catalog_->Commit(&batch, true);
}

RecordLogStats RecordLog::stats() const {
  RecordLogStats stats;
  std::lock_guard<std::mutex> lock(mutex_);
  stats.writing = clock_->NowNs() >= paused_until_ns_;
  stats.last_error = last_error_;
  stats.errors = errors_;
  stats.groups = committed_groups_;
  stats.spilled_bytes = spilled_bytes_;
  stats.spilled_records = spilled_records_;
  stats.moved_bytes = moved_bytes_;
  stats.moved_records = moved_records_;
  return stats;
}

}  // namespace quarry::server
