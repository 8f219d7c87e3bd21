#include "server/ssd/reclaimer.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <optional>
#include <utility>

#include "server/ssd/record_header.h"
#include "server/ssd/use_time.h"
#include "server/ssd/whole_records.h"

namespace quarry::server {
namespace {

// Read and written again at once.
constexpr uint64_t kMoveBytes = 16 << 20;
constexpr std::chrono::milliseconds kLookAgain{1000};
// Between victims that could not be emptied, and looks at readers.
constexpr std::chrono::milliseconds kTryAgain{200};
constexpr std::chrono::milliseconds kReadersEnd{1};

}  // namespace

Reclaimer::Reclaimer(uint32_t disk, RecordLog* log, ExtentSet* extents, const Catalog* catalog, IoQueue* io,
                     SsdOwner* owner, Clock* clock)
    : disk_(disk),
      log_(log),
      extents_(extents),
      catalog_(catalog),
      io_(io),
      owner_(owner),
      clock_(clock),
      thread_([this] { Loop(); }) {}

Reclaimer::~Reclaimer() {
  stopping_ = true;
  extents_->Wake();
  thread_.join();
}

void Reclaimer::Loop() {
  while (!stopping_) {
    extents_->WaitForFewer(kSpareExtents - 1, kLookAgain);
    if (stopping_ || extents_->free() >= kSpareExtents) continue;
    Extent* victim = log_->CanWrite() ? extents_->TakeVictim() : nullptr;
    if (victim == nullptr) {
      std::this_thread::sleep_for(kTryAgain);
    } else if (Reclaim(victim)) {
      reclaimed_.fetch_add(1, std::memory_order_relaxed);
    } else {
      extents_->Seal(victim);
      std::this_thread::sleep_for(kTryAgain);
    }
  }
}

// False: it is not empty, or the catalog could not be told.
bool Reclaimer::Reclaim(Extent* victim) {
  // Whoever wrote to it has heard of it.
  log_->Flush();
  bool complete = false;
  std::vector<LogEntry> kept = ToKeep(*victim, &complete);
  if (!complete) return false;
  std::vector<LogEntry> batch;
  uint64_t bytes = 0;
  for (LogEntry& entry : kept) {
    if (stopping_) return false;
    bytes += RecordBytes(entry.payload_bytes);
    batch.push_back(std::move(entry));
    if (bytes < kMoveBytes) continue;
    Move(victim, std::exchange(batch, {}));
    bytes = 0;
  }
  if (!batch.empty()) Move(victim, std::move(batch));
  log_->Flush();
  // What could not be written elsewhere is still here; so is what a flushed namespace has left,
  // until the owner lets go of it.
  if (victim->live_records.load() != 0) return false;
  // Nobody is told of these records any more; who was, is let finish.
  while (victim->readers.load() != 0) {
    if (stopping_) return false;
    std::this_thread::sleep_for(kReadersEnd);
  }
  if (absl::Status status = log_->Empty(*victim); !status.ok()) {
    log_->Pause(status);
    return false;
  }
  extents_->Release(victim);
  return true;
}

std::vector<LogEntry> Reclaimer::ToKeep(const Extent& victim, bool* complete) {
  const UseTime now = UseTimeNow(*clock_);
  const UseTime age = now - victim.began_at;
  const UseTime used_since = now - static_cast<UseTime>(kUsedShare * age);
  std::vector<LogEntry> kept;
  const absl::Status status = catalog_->ForEachRecordOf(victim.number, [&](const CatalogRecord& record) {
    const std::optional<RecordLog::Contents> contents = log_->ContentsOf(record.ns);
    if (!contents) return;
    LogEntry entry = EntryOf(disk_, record, *contents);
    const ShardKey key{contents->index, record.group, record.shard, entry.item.hash};
    if (owner_->OnReclaim(key, entry.from, used_since) == SsdOwner::Fate::kKeep) kept.push_back(std::move(entry));
  });
  *complete = status.ok();
  if (!status.ok()) log_->Pause(status);
  return kept;
}

void Reclaimer::Move(Extent* victim, std::vector<LogEntry> entries) {
  log_->Append(ReadAll(victim, std::move(entries)), 0);
}

// Those that could be read, and are what they should be. Others are lost.
std::vector<LogEntry> Reclaimer::ReadAll(Extent* victim, std::vector<LogEntry> entries) {
  const std::vector<bool> good = ReadWhole(*victim, *catalog_, io_, &entries);
  std::vector<LogEntry> read;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (good[i]) {
      read.push_back(std::move(entries[i]));
      continue;
    }
    const SpillItem& item = entries[i].item;
    owner_->OnLost({item.ns_index, item.group, item.shard, item.hash}, entries[i].from);
  }
  return read;
}

}  // namespace quarry::server
