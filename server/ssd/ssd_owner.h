// What a disk asks of whoever keeps the index: the block store.
#ifndef QUARRY_SERVER_SSD_SSD_OWNER_H_
#define QUARRY_SERVER_SSD_SSD_OWNER_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "server/dram/slot.h"
#include "server/namespaces.h"
#include "server/ssd/record_header.h"
#include "server/ssd/record_table.h"
#include "server/ssd/use_time.h"

namespace quarry::server {

// One shard of a block, by its key in the index.
struct ShardKey {
  uint16_t ns = 0;  // index
  uint8_t group = 0;
  uint16_t shard = 0;
  absl::string_view hash;
};

// A shard that is to be written. It is read from its slot until the write has ended.
struct SpillItem {
  const Namespace* ns = nullptr;
  uint16_t ns_index = 0;
  uint8_t group = 0;
  uint16_t shard = 0;
  std::string hash;
  uint32_t depth = 0;        // EvictionPolicy's
  int64_t stored_at_ms = 0;  // since 1970
  uint32_t block = 0;        // its number in the index
  uint64_t turn = 0;         // the owner's: which of its blocks goes first when memory is needed
  SlotRef slot;
};

// A record that is to be read.
struct SsdRead {
  // kNoMemory: the store's own, when it has no slot to read into.
  enum class Outcome : uint8_t { kGood, kCorrupt, kIoError, kNoMemory };

  RecordPlace place;
  absl::string_view namespace_id;  // the namespace's own
  uint8_t group = 0;
  uint16_t shard = 0;
  std::string hash;
  uint32_t payload_bytes = 0;
  ChunkRange chunks;  // that are wanted; of an inlined record it may be all that comes
  SlotRef to;
  bool is_lent = false;  // the owner's: what it is to know of the slot when it comes back
  // Called once, on any thread. kGood: header of the slot and payload, where it was wanted, are in
  // place, and the sums hold.
  std::function<void(Outcome, SlotRef, bool is_lent)> done;
};

// Called by the disks' threads, without locks of theirs.
class SsdOwner {
 public:
  virtual ~SsdOwner() = default;

  // The item will be there after a crash. False: nobody wants it any more, and the record is
  // free again.
  virtual bool OnWritten(const SpillItem& item, uint32_t record) = 0;
  // It was not written. `disk_failed`: it was the disk's fault, so another may take it; else
  // none would.
  virtual void OnWriteFailed(const SpillItem& item, bool disk_failed) = 0;

  // The extent of that record is to be emptied. kGone: the record was let go of, or is now;
  // kKeep: it is to be moved. `used_since`: only what was used later than that is kept, and
  // what is leased.
  enum class Fate : uint8_t { kGone, kKeep };
  virtual Fate OnReclaim(const ShardKey& key, const RecordPlace& place, UseTime used_since) = 0;
  // False: nobody wants it any more.
  virtual bool OnMoved(const ShardKey& key, const RecordPlace& from, const RecordPlace& to) = 0;
  // The record cannot be moved: it cannot be read, or is not what it should be.
  virtual void OnLost(const ShardKey& key, const RecordPlace& place) = 0;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SSD_SSD_OWNER_H_
