#include "server/ssd/record_table.h"

#include <utility>

namespace quarry::server {

absl::StatusOr<std::unique_ptr<RecordTable>> RecordTable::Create(uint32_t max_records) {
  auto memory = ReservedMemory::Create(uint64_t{max_records} * sizeof(Record), ReservedMemory::Pages::kHuge);
  if (!memory.ok()) return memory.status();
  return std::unique_ptr<RecordTable>(new RecordTable(max_records, *std::move(memory)));
}

RecordTable::RecordTable(uint32_t max_records, ReservedMemory memory)
    : max_records_(max_records), memory_(std::move(memory)) {}

uint32_t RecordTable::Add(const RecordPlace& place, uint32_t payload_bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  uint32_t record = free_head_;
  if (record != kNoRecord) {
    free_head_ = At(record).payload_bytes;
  } else if (used_ < max_records_) {
    record = used_++;
  } else {
    return kNoRecord;
  }
  ++live_;
  At(record) = {place, payload_bytes, 0};
  return record;
}

void RecordTable::Free(uint32_t record) {
  std::lock_guard<std::mutex> lock(mutex_);
  At(record).payload_bytes = free_head_;
  free_head_ = record;
  --live_;
}

uint32_t RecordTable::size() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return live_;
}

uint64_t RecordTable::memory_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return uint64_t{used_} * sizeof(Record);
}

}  // namespace quarry::server
