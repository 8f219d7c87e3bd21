// The SSD tier: all disks of a node, and the table of what lies on them.
#ifndef QUARRY_SERVER_SSD_SSD_TIER_H_
#define QUARRY_SERVER_SSD_SSD_TIER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "server/ssd/record_table.h"
#include "server/ssd/ssd_disk.h"
#include "server/ssd/ssd_owner.h"

namespace quarry::server {

struct SsdTierOptions {
  std::vector<SsdDiskOptions> disks;  // their numbers are set here
  uint32_t max_records = 0;           // of all disks; bounds the memory that finds them
  // What the block store may write to all of them together; see WriteBudget. 0: without a bound.
  uint64_t write_budget_bytes_per_day = 0;
  uint64_t write_burst_bytes = 0;
};

// Thread-safe.
class SsdTier {
 public:
  // InvalidArgument, FailedPrecondition and others name the directory. Owner and clock
  // outlive it.
  static absl::StatusOr<std::unique_ptr<SsdTier>> Open(const SsdTierOptions& options, SsdOwner* owner, Clock* clock);
  // Writes what was given to it; nothing is asked of the owner afterwards.
  ~SsdTier();

  // See SsdDisk.
  absl::Status Recover(const SsdDisk::Know& know, const SsdDisk::Restore& restore);
  void Start();

  bool CanWrite() const;
  // Whether one that writes has nothing to write.
  bool HasIdleDisk() const;
  // From now on what is given to Write fails at once; what was given before does not.
  void StopWriting();
  // All to one disk, so that neighbours stay neighbours: of those that write, the one with least
  // to write yet.
  void Write(std::vector<SpillItem> items);
  void Flush();
  void BeginRead(const RecordPlace& place) { disks_[place.disk]->BeginRead(place); }
  void EndRead(const RecordPlace& place) { disks_[place.disk]->EndRead(place); }
  void Read(std::vector<SsdRead> reads);
  // Frees the record's number, too.
  void Drop(uint32_t record);
  void ForgetNamespace(uint16_t ns_index);
  void NamespaceChanged(const Namespace& ns);

  uint64_t moved_bytes() const;  // by reclaim, since the start
  RecordTable& records() { return *records_; }
  const RecordTable& records() const { return *records_; }
  std::vector<SsdDiskStats> stats() const;
  std::vector<std::vector<SsdExtentInfo>> extents() const;  // by disk

 private:
  explicit SsdTier(std::unique_ptr<RecordTable> records) : records_(std::move(records)) {}

  const std::unique_ptr<RecordTable> records_;
  std::vector<std::unique_ptr<SsdDisk>> disks_;
  std::atomic<uint32_t> next_disk_{0};
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SSD_SSD_TIER_H_
