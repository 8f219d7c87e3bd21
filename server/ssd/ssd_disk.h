// One --ssd-dir: a catalog, extents, and what writes, reads and reclaims them. A disk is its
// own failure domain: what it does not take or give costs hits, and nothing else.
//
//   DIR/catalog/  RocksDB (catalog.h)
//   DIR/extents/  00000001.extent, ...: payloads with their headers (record_header.h)
#ifndef QUARRY_SERVER_SSD_SSD_DISK_H_
#define QUARRY_SERVER_SSD_SSD_DISK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "server/ssd/catalog.h"
#include "server/ssd/extent_set.h"
#include "server/ssd/io/io_queue.h"
#include "server/ssd/reclaimer.h"
#include "server/ssd/record_log.h"
#include "server/ssd/record_reader.h"
#include "server/ssd/record_table.h"
#include "server/ssd/ssd_owner.h"

namespace quarry::server {

struct SsdDiskOptions {
  std::string dir;
  uint32_t number = 0;        // RecordPlace's
  uint64_t max_bytes = 0;     // of all extents; at least kMinExtents of kMinExtentBytes
  uint64_t extent_bytes = 0;  // 0: chosen from max_bytes
  uint64_t group_bytes = 64 << 20;
  uint64_t catalog_memory_bytes = 64 << 20;
  bool wipe_newer = false;
  IoEngineKind io_engine = IoEngineKind::kAuto;
  uint32_t io_depth = 64;
  uint32_t inline_bytes = 4096;  // payloads up to this size go into the catalog
  // Of the newest records, so many bytes are read and checked at the start: a disk that says it
  // has synced what it has not loses what came last.
  uint64_t check_bytes = 64 << 20;

  // Seams: what these return stands in for what they are given. Not set: the real ones.
  std::function<std::unique_ptr<IoEngine>(std::unique_ptr<IoEngine>)> wrap_io;
  std::function<std::unique_ptr<ExtentFiles>(std::unique_ptr<ExtentFiles>)> wrap_files;
  rocksdb::Env* env = nullptr;
};

struct SsdDiskStats {
  std::string dir;
  std::string io_engine;
  bool direct = true;  // O_DIRECT
  uint64_t max_bytes = 0;
  uint64_t extent_bytes = 0;  // of new ones
  uint64_t extents = 0;
  uint64_t free_extents = 0;
  uint64_t live_bytes = 0;  // records that may be asked for, headers included
  uint64_t live_records = 0;
  uint64_t reclaimed_extents = 0;
  uint64_t recovered_records = 0;  // at the start
  uint64_t dropped_records = 0;    // at the start: in the catalog, but not believed
  RecordLogStats log;
  RecordReaderStats reader;
  IoQueueStats io;
  CatalogStats catalog;
};

// One extent, as `quarryctl ssd` shows it.
struct SsdExtentInfo {
  uint32_t number = 0;
  bool inlined = false;
  bool bad = false;
  Extent::State state = Extent::State::kFree;
  uint64_t generation = 0;
  uint64_t bytes = 0;
  uint64_t written_bytes = 0;
  uint64_t live_bytes = 0;
  uint64_t live_records = 0;
};

// Thread-safe, but for Recover.
class SsdDisk {
 public:
  static constexpr uint64_t kMinExtents = 8;
  static constexpr uint64_t kMinExtentBytes = 4 << 20;

  // Opens or creates it. The message of an error names the directory.
  static absl::StatusOr<std::unique_ptr<SsdDisk>> Open(const SsdDiskOptions& options, RecordTable* records,
                                                       SsdOwner* owner, Clock* clock);
  // Writes what was given to it.
  ~SsdDisk();

  // First of all: what was there. `know` gives the contents that a namespace of the catalog
  // has now; none: it is dropped. `restore` says whether the record is wanted; `place` is
  // where it lies.
  using Know = std::function<std::optional<RecordLog::Contents>(const CatalogNamespace&)>;
  using Restore = std::function<bool(uint16_t ns_index, const CatalogRecord&, const RecordPlace& place)>;
  absl::Status Recover(const Know& know, const Restore& restore);
  // Then: begins to write and to reclaim.
  void Start();

  bool CanWrite() const { return log_->CanWrite(); }
  void StopWriting() { log_->StopAppending(); }
  // See RecordLog::Append.
  void Write(std::vector<SpillItem> items);
  void Flush() { log_->Flush(); }

  // See RecordReader.
  void BeginRead(const RecordPlace& place) { reader_->Begin(place); }
  void EndRead(const RecordPlace& place) { reader_->End(place); }
  void Read(std::vector<SsdRead> reads) { reader_->Read(std::move(reads)); }
  // With the mutex that guards its place: nobody asks for the record any more.
  void Drop(const RecordPlace& place, uint32_t payload_bytes);

  // The contents of that index are gone, for good.
  void ForgetNamespace(uint16_t ns_index) { log_->ForgetNamespace(ns_index); }
  // What the catalog says of it has changed.
  void NamespaceChanged(const Namespace& ns) { log_->NamespaceChanged(ns); }

  const std::string& dir() const { return options_.dir; }
  uint64_t moved_bytes() const { return log_->moved_bytes(); }
  uint64_t unanswered_bytes() const { return log_->unanswered_bytes(); }
  SsdDiskStats stats() const;
  std::vector<SsdExtentInfo> extents() const;

 private:
  using PageOfExtent = std::pair<uint32_t, uint32_t>;

  SsdDisk(const SsdDiskOptions& options, RecordTable* records, SsdOwner* owner, Clock* clock,
          std::unique_ptr<Catalog> catalog, std::unique_ptr<ExtentFiles> files, std::unique_ptr<IoEngine> engine);

  absl::Status RestoreExtents();
  // Among the newest records.
  std::set<PageOfExtent> FindBad() const;
  bool Believe(const CatalogRecord& record, const Restore& restore);
  absl::Status Forget(const std::vector<RecordPlace>& places);

  const SsdDiskOptions options_;
  SsdOwner* const owner_;
  Clock* const clock_;
  // In the order in which they depend on each other; destroyed from the last.
  const std::unique_ptr<Catalog> catalog_;
  ExtentSet extents_;
  std::unique_ptr<IoQueue> io_;
  std::unique_ptr<RecordReader> reader_;
  std::unique_ptr<RecordLog> log_;
  std::unique_ptr<Reclaimer> reclaimer_;
  uint64_t recovered_records_ = 0;
  uint64_t dropped_records_ = 0;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SSD_SSD_DISK_H_
