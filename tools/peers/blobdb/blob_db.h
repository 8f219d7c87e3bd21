// A RocksDB database whose values lie in blob files, as a cache on an SSD would be made of it.
#ifndef QUARRY_TOOLS_PEERS_BLOBDB_BLOB_DB_H_
#define QUARRY_TOOLS_PEERS_BLOBDB_BLOB_DB_H_

#include <rocksdb/db.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace quarry::peers {

// Direct IO, no compression, checksums as they come. Put, Get and Flush are thread-safe.
class BlobDb {
 public:
  // With `wal` every write is logged and synced; without, what is written is durable after Flush.
  static absl::StatusOr<std::shared_ptr<BlobDb>> Open(const std::string& dir, bool wal);

  // One write for all; `values` has value_bytes for each key.
  absl::Status Put(absl::Span<const std::string> keys, absl::Span<std::byte* const> values, size_t value_bytes);
  // One MultiGet, straight into the values. NotFound, or DataLoss of another length.
  absl::Status Get(absl::Span<const std::string> keys, absl::Span<std::byte* const> values, size_t value_bytes);
  // All that was put before is in blob files, synced.
  absl::Status Flush();
  // An empty database. Nothing else may be under way.
  absl::Status Clear();

 private:
  BlobDb(std::string dir, bool wal) : dir_(std::move(dir)), wal_(wal) {}
  absl::Status Reopen();

  const std::string dir_;
  const bool wal_;
  std::unique_ptr<rocksdb::DB> db_;
};

}  // namespace quarry::peers

#endif  // QUARRY_TOOLS_PEERS_BLOBDB_BLOB_DB_H_
