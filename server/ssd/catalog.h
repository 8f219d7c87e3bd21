// What a disk holds: namespaces, blocks, small payloads, extents, in RocksDB.
//
// | column family | key                              | value                              |
// | default       | "format"                         | version                            |
// | namespaces    | number, 4 bytes                  | tenant, name, spec, ttl            |
// | extents       | number, 4 bytes                  | generation                         |
// | blocks        | extent, page: 4 bytes each       | CatalogRecord                      |
// | payloads      | extent, page of an inline extent | header and payload                 |
//
// All numbers in keys are big-endian: so a block's key says where it lies, a scan goes over
// the disk in order, and what an extent held goes with one range delete. Blocks are found by
// the index in memory, never by a lookup here.
#ifndef QUARRY_SERVER_SSD_CATALOG_H_
#define QUARRY_SERVER_SSD_CATALOG_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "quarry/model_spec.h"

namespace rocksdb {
class Env;
}  // namespace rocksdb

namespace quarry::server {

// A namespace's contents: a namespace that was flushed goes on under another number, and the
// blocks of a number that is not in the catalog are not there.
struct CatalogNamespace {
  uint32_t number = 0;  // of this disk; never given twice
  std::string tenant;
  std::string name;
  ModelSpec spec;
  uint64_t ttl_ms = 0;
};

struct CatalogExtent {
  uint32_t number = 0;
  uint64_t generation = 0;  // of what is in it: grows each time the extent is used anew
};

// One shard of a block.
struct CatalogRecord {
  uint32_t extent = 0;
  uint32_t page = 0;  // where it begins in the extent: in 4 KiB, or a count in an inline one
  uint32_t ns = 0;    // CatalogNamespace::number
  uint8_t group = 0;
  bool inlined = false;  // the payload is in the catalog
  uint16_t shard = 0;
  uint32_t depth = 0;  // EvictionPolicy's
  uint32_t payload_bytes = 0;
  int64_t stored_at_ms = 0;  // since 1970
  uint64_t root = 0;         // of the payload's sums
  absl::string_view hash;    // valid during the call it is given in
};

// One batch. Not thread-safe; empty again after Commit.
class CatalogBatch {
 public:
  CatalogBatch();
  ~CatalogBatch();
  CatalogBatch(CatalogBatch&&) noexcept;
  CatalogBatch& operator=(CatalogBatch&&) noexcept;

  void Put(const CatalogRecord& record);
  // Of a record that is inlined. `header` as in record_header.h.
  void PutPayload(uint32_t extent, uint32_t page, absl::string_view header, absl::string_view payload);
  void Remove(uint32_t extent, uint32_t page, bool inlined);
  void Put(const CatalogExtent& extent);
  // All records in it, and their payloads.
  void Empty(uint32_t extent);
  void Put(const CatalogNamespace& ns);
  void RemoveNamespace(uint32_t number);

 private:
  friend class Catalog;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct CatalogOptions {
  bool wipe_newer = false;  // a format version newer than ours: wiped instead of refused
  bool read_only = false;   // for offline checks
  // Of its block cache and memtables together; part of the node's --memory.
  uint64_t memory_bytes = 64 << 20;
  rocksdb::Env* env = nullptr;  // nullptr: the default one. Outlives the catalog
};

// Figures of RocksDB's own, for the metrics.
struct CatalogStats {
  uint64_t bytes_on_disk = 0;
  uint64_t wal_bytes = 0;  // written since it was opened
  uint64_t flush_bytes = 0;
  uint64_t compaction_bytes = 0;  // written
  uint64_t memory_bytes = 0;
  uint64_t records = 0;  // an estimate
};

// Thread-safe.
class Catalog {
 public:
  static constexpr uint32_t kFormatVersion = 1;

  // Creates the directory, or opens what is there. FailedPrecondition: written by a newer
  // version, another process has it open, or it is somebody else's RocksDB; NotFound: nothing is
  // there, with read_only. The message names the directory.
  static absl::StatusOr<std::unique_ptr<Catalog>> Open(const std::string& dir, const CatalogOptions& options);
  ~Catalog();

  // By wipe_newer: what the extents' files hold is void as well.
  bool wiped() const;

  // In the order of their keys. A value that cannot be read is counted in `unreadable` and
  // passed over; so is, among records, a place where the catalog's own sums do not hold, with
  // what lies about it. `visit` must not call the catalog.
  absl::Status ForEachNamespace(const std::function<void(CatalogNamespace)>& visit, uint64_t* unreadable) const;
  absl::Status ForEachExtent(const std::function<void(CatalogExtent)>& visit, uint64_t* unreadable) const;
  absl::Status ForEachRecord(const std::function<void(const CatalogRecord&)>& visit, uint64_t* unreadable) const;

  // Those of one extent. Fails where one cannot be read.
  absl::Status ForEachRecordOf(uint32_t extent, const std::function<void(const CatalogRecord&)>& visit) const;

  // Atomic. `sync`: on the disk when it returns, with all that was committed before. The batch is
  // empty afterwards in any case. ResourceExhausted: no space; FailedPrecondition: read_only.
  absl::Status Commit(CatalogBatch* batch, bool sync);
  // Header and payload as they were put. NotFound; DataLoss.
  absl::StatusOr<std::string> ReadPayload(uint32_t extent, uint32_t page) const;

  // After a background error RocksDB refuses writes: tries to go on. Ok: it does. Unavailable: it
  // is trying by itself already, as it does every few seconds when there was no space.
  absl::Status Resume();
  CatalogStats stats() const;

 private:
  struct Impl;
  explicit Catalog(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SSD_CATALOG_H_
