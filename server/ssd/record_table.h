// What lies on the SSDs, in memory: two words a record, found through its block's entry in
// the index.
#ifndef QUARRY_SERVER_SSD_RECORD_TABLE_H_
#define QUARRY_SERVER_SSD_RECORD_TABLE_H_

#include <cstdint>
#include <memory>
#include <mutex>

#include "absl/status/statusor.h"
#include "server/dram/block_entry.h"
#include "server/dram/reserved_memory.h"

namespace quarry::server {

// Where a record lies.
struct RecordPlace {
  static constexpr uint32_t kMaxExtents = 1u << 23;
  static constexpr uint32_t kMaxDisks = 1u << 8;

  uint32_t page = 0;  // of its extent; a count in an inline one
  uint32_t extent : 23 = 0;
  uint32_t inlined : 1 = 0;  // the catalog has the payload
  uint32_t disk : 8 = 0;

  friend bool operator==(const RecordPlace&, const RecordPlace&) = default;
};
static_assert(sizeof(RecordPlace) == 8);

// Numbers are given and taken back by any thread. What a number stands for is guarded by the
// mutex of its block's shard of the index.
class RecordTable {
 public:
  struct Record {
    RecordPlace place;
    uint32_t payload_bytes = 0;
    // When its block was last used, in units of SsdTier::Now; 0: not since it was written.
    uint32_t used_at = 0;
  };

  // At most so many records; memory is touched as they come. ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<RecordTable>> Create(uint32_t max_records);

  // kNoRecord: the table is full.
  uint32_t Add(const RecordPlace& place, uint32_t payload_bytes);
  void Free(uint32_t record);
  Record& At(uint32_t record) const { return reinterpret_cast<Record*>(memory_.data())[record]; }

  uint32_t max_records() const { return max_records_; }
  uint32_t size() const;
  uint64_t memory_bytes() const;

 private:
  RecordTable(uint32_t max_records, ReservedMemory memory);

  const uint32_t max_records_;
  const ReservedMemory memory_;
  mutable std::mutex mutex_;
  uint32_t used_ = 0;  // numbers ever given
  uint32_t live_ = 0;
  uint32_t free_head_ = kNoRecord;  // of a list through payload_bytes
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SSD_RECORD_TABLE_H_
