#include "server/ssd/reclaimer.h"

#include <spdlog/spdlog.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "server/ssd/record_header.h"
#include "server/ssd/use_time.h"

namespace quarry::server {
namespace {

// Read and written again at once.
constexpr uint64_t kMoveBytes = 16 << 20;
constexpr std::chrono::milliseconds kLookAgain{1000};
// Between victims that could not be emptied, and looks at readers.
constexpr std::chrono::milliseconds kTryAgain{200};
constexpr std::chrono::milliseconds kReadersEnd{1};

bool IsGood(const Extent& victim, const LogEntry& entry) {
  RecordHeader expected;
  expected.identity = {entry.item.ns->id, entry.item.group, entry.item.shard, entry.item.hash};
  expected.generation = victim.generation;
  expected.payload_bytes = entry.payload_bytes;
  const uint64_t header_bytes = RecordHeaderBytes(entry.payload_bytes);
  uint64_t root;
  absl::Span<const uint64_t> sums;
  return RecordHolds({entry.bytes.data(), header_bytes}, entry.bytes.data() + header_bytes, expected, &root, &sums);
}

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
    LogEntry entry;
    const std::optional<RecordLog::Contents> contents = log_->ContentsOf(record.ns);
    if (!contents) return;
    entry.from.disk = disk_;
    entry.from.extent = record.extent;
    entry.from.page = record.page;
    entry.from.inlined = record.inlined ? 1 : 0;
    entry.item.ns = contents->ns;
    entry.item.ns_index = contents->index;
    entry.item.group = record.group;
    entry.item.shard = record.shard;
    entry.item.hash = std::string(record.hash);
    entry.item.depth = record.depth;
    entry.item.stored_at_ms = record.stored_at_ms;
    entry.payload_bytes = record.payload_bytes;
    entry.root = record.root;
    entry.moved = true;
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
  std::mutex mutex;
  std::condition_variable ended;
  size_t open = entries.size();
  std::vector<int64_t> results(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    LogEntry& entry = entries[i];
    const uint64_t bytes = RecordBytes(entry.payload_bytes);
    entry.bytes = AlignedBuffer(bytes);
    const auto done = [&, i](int64_t result) {
      std::lock_guard<std::mutex> lock(mutex);
      results[i] = result;
      if (--open == 0) ended.notify_one();
    };
    if (victim->inlined) {
      const absl::StatusOr<std::string> stored = catalog_->ReadPayload(entry.from.extent, entry.from.page);
      const bool whole = stored.ok() && stored->size() == RecordHeaderBytes(entry.payload_bytes) + entry.payload_bytes;
      if (whole) stored->copy(reinterpret_cast<char*>(entry.bytes.data()), stored->size());
      done(whole ? static_cast<int64_t>(bytes) : -EIO);
      continue;
    }
    IoRequest request;
    request.fd = victim->fd.get();
    request.offset = entry.from.page * kPageBytes;
    request.parts.push_back({entry.bytes.data(), bytes});
    request.done = done;
    io_->Submit(std::move(request));
  }
  {
    std::unique_lock<std::mutex> lock(mutex);
    ended.wait(lock, [&] { return open == 0; });
  }
  std::vector<LogEntry> good;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (results[i] >= 0 && IsGood(*victim, entries[i])) {
      good.push_back(std::move(entries[i]));
      continue;
    }
    const SpillItem& item = entries[i].item;
    owner_->OnLost({item.ns_index, item.group, item.shard, item.hash}, entries[i].from);
  }
  return good;
}

}  // namespace quarry::server
