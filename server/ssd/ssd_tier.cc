#include "server/ssd/ssd_tier.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace quarry::server {

absl::StatusOr<std::unique_ptr<SsdTier>> SsdTier::Open(const SsdTierOptions& options, SsdOwner* owner, Clock* clock) {
  if (options.disks.size() > RecordPlace::kMaxDisks) {
    return absl::InvalidArgumentError(
        absl::StrCat("--ssd-dir: given ", options.disks.size(), " times, at most ", RecordPlace::kMaxDisks));
  }
  auto records = RecordTable::Create(options.max_records);
  if (!records.ok()) return records.status();
  std::unique_ptr<SsdTier> tier(new SsdTier(*std::move(records)));
  for (SsdDiskOptions disk : options.disks) {
    disk.number = static_cast<uint32_t>(tier->disks_.size());
    auto opened = SsdDisk::Open(disk, tier->records_.get(), owner, clock);
    if (!opened.ok()) return opened.status();
    tier->disks_.push_back(*std::move(opened));
  }
  return tier;
}

SsdTier::~SsdTier() = default;

absl::Status SsdTier::Recover(const SsdDisk::Know& know, const SsdDisk::Restore& restore) {
  for (const auto& disk : disks_) {
    if (absl::Status status = disk->Recover(know, restore); !status.ok()) return status;
  }
  return absl::OkStatus();
}

void SsdTier::Start() {
  for (const auto& disk : disks_) disk->Start();
}

void SsdTier::StopWriting() {
  for (const auto& disk : disks_) disk->StopWriting();
}

bool SsdTier::CanWrite() const {
  return std::any_of(disks_.begin(), disks_.end(), [](const auto& disk) { return disk->CanWrite(); });
}

bool SsdTier::HasIdleDisk() const {
  return std::any_of(disks_.begin(), disks_.end(),
                     [](const auto& disk) { return disk->CanWrite() && disk->unanswered_bytes() == 0; });
}

void SsdTier::Write(std::vector<SpillItem> items) {
  const size_t first = next_disk_.fetch_add(1, std::memory_order_relaxed);
  SsdDisk* chosen = disks_[first % disks_.size()].get();
  uint64_t least_bytes = UINT64_MAX;
  for (size_t i = 0; i < disks_.size() && least_bytes != 0; ++i) {
    SsdDisk* disk = disks_[(first + i) % disks_.size()].get();
    const uint64_t bytes = disk->unanswered_bytes();
    if (!disk->CanWrite() || bytes >= least_bytes) continue;
    least_bytes = bytes;
    chosen = disk;
  }
  chosen->Write(std::move(items));
}

void SsdTier::Flush() {
  for (const auto& disk : disks_) disk->Flush();
}

void SsdTier::Read(std::vector<SsdRead> reads) {
  std::vector<std::vector<SsdRead>> by_disk(disks_.size());
  for (SsdRead& read : reads) by_disk[read.place.disk].push_back(std::move(read));
  for (size_t i = 0; i < disks_.size(); ++i) {
    if (!by_disk[i].empty()) disks_[i]->Read(std::move(by_disk[i]));
  }
}

void SsdTier::Drop(uint32_t record) {
  const RecordTable::Record& dropped = records_->At(record);
  disks_[dropped.place.disk]->Drop(dropped.place, dropped.payload_bytes);
  records_->Free(record);
}

void SsdTier::ForgetNamespace(uint16_t ns_index) {
  for (const auto& disk : disks_) disk->ForgetNamespace(ns_index);
}

void SsdTier::NamespaceChanged(const Namespace& ns) {
  for (const auto& disk : disks_) disk->NamespaceChanged(ns);
}

uint64_t SsdTier::moved_bytes() const {
  uint64_t bytes = 0;
  for (const auto& disk : disks_) bytes += disk->moved_bytes();
  return bytes;
}

std::vector<SsdDiskStats> SsdTier::stats() const {
  std::vector<SsdDiskStats> stats;
  for (const auto& disk : disks_) stats.push_back(disk->stats());
  return stats;
}

std::vector<std::vector<SsdExtentInfo>> SsdTier::extents() const {
  std::vector<std::vector<SsdExtentInfo>> extents;
  for (const auto& disk : disks_) extents.push_back(disk->extents());
  return extents;
}

}  // namespace quarry::server
