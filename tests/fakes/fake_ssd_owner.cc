#include "tests/fakes/fake_ssd_owner.h"

namespace quarry::fakes {

using server::RecordPlace;
using server::ShardKey;

void FakeSsdOwner::set_disk(server::SsdDisk* disk) {
  std::lock_guard<std::mutex> lock(mutex_);
  disk_ = disk;
}

void FakeSsdOwner::Keep(const std::string& hash) {
  std::lock_guard<std::mutex> lock(mutex_);
  kept_.insert(hash);
}

void FakeSsdOwner::RemoveLocked(const std::string& hash) {
  const auto it = held_.find(hash);
  if (it == held_.end()) return;
  disk_->Drop(it->second.place, it->second.payload_bytes);
  records_->Free(it->second.record);
  held_.erase(it);
}

void FakeSsdOwner::Remove(const std::string& hash) {
  std::lock_guard<std::mutex> lock(mutex_);
  RemoveLocked(hash);
}

void FakeSsdOwner::Lose(const std::string& hash) { Remove(hash); }

std::optional<FakeSsdOwner::Held> FakeSsdOwner::BeginRead(const std::string& hash) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = held_.find(hash);
  if (it == held_.end()) return std::nullopt;
  disk_->BeginRead(it->second.place);
  return it->second;
}

bool FakeSsdOwner::Restore(uint16_t ns_index, const server::CatalogRecord& record, const RecordPlace& place) {
  std::lock_guard<std::mutex> lock(mutex_);
  const std::string hash(record.hash);
  if (held_.contains(hash)) return false;
  const uint32_t number = records_->Add(place, record.payload_bytes);
  if (number == server::kNoRecord) return false;
  held_[hash] = {number, place, record.payload_bytes, ns_index};
  return true;
}

std::set<std::string> FakeSsdOwner::held() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::set<std::string> hashes;
  for (const auto& [hash, held] : held_) hashes.insert(hash);
  return hashes;
}

std::map<std::string, FakeSsdOwner::Held> FakeSsdOwner::places() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return held_;
}

std::set<std::string> FakeSsdOwner::failed() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return failed_;
}

std::set<std::string> FakeSsdOwner::lost() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return lost_;
}

uint64_t FakeSsdOwner::moved() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return moved_;
}

bool FakeSsdOwner::OnWritten(const server::SpillItem& item, uint32_t record) {
  std::lock_guard<std::mutex> lock(mutex_);
  const server::RecordTable::Record& written = records_->At(record);
  return held_.try_emplace(item.hash, Held{record, written.place, written.payload_bytes, item.ns_index}).second;
}

void FakeSsdOwner::OnWriteFailed(const server::SpillItem& item, bool /*disk_failed*/) {
  std::lock_guard<std::mutex> lock(mutex_);
  failed_.insert(item.hash);
}

server::SsdOwner::Fate FakeSsdOwner::OnReclaim(const ShardKey& key, const RecordPlace& place,
                                               server::UseTime /*used_since*/) {
  std::lock_guard<std::mutex> lock(mutex_);
  const std::string hash(key.hash);
  const auto it = held_.find(hash);
  if (it == held_.end() || it->second.place != place) return Fate::kGone;
  if (kept_.contains(hash)) return Fate::kKeep;
  RemoveLocked(hash);
  return Fate::kGone;
}

bool FakeSsdOwner::OnMoved(const ShardKey& key, const RecordPlace& from, const RecordPlace& to) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = held_.find(std::string(key.hash));
  if (it == held_.end() || it->second.place != from) return false;
  it->second.place = to;
  records_->At(it->second.record).place = to;
  ++moved_;
  return true;
}

void FakeSsdOwner::OnLost(const ShardKey& key, const RecordPlace& place) {
  std::lock_guard<std::mutex> lock(mutex_);
  const std::string hash(key.hash);
  const auto it = held_.find(hash);
  if (it == held_.end() || it->second.place != place) return;
  RemoveLocked(hash);
  lost_.insert(hash);
}

}  // namespace quarry::fakes
