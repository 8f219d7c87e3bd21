#include "tools/peers/blobdb/blob_db.h"

#include <rocksdb/options.h>
#include <rocksdb/write_batch.h>

#include <cstring>

#include "absl/strings/str_cat.h"

namespace quarry::peers {
namespace {

constexpr uint64_t kBlobFileBytes = 256 << 20;
// Several, so that writing goes on while some are flushed. Larger ones wrote no faster.
constexpr size_t kMemtableBytes = 64 << 20;
constexpr int kMemtables = 4;
constexpr int kBackgroundJobs = 8;  // a quarter of them flush; with 4, one did, and wrote more slowly
// Of direct IO: one write each.
constexpr size_t kWriteBytes = 4 << 20;

absl::Status ToStatus(const rocksdb::Status& status) {
  if (status.ok()) return absl::OkStatus();
  if (status.IsNotFound()) return absl::NotFoundError("a value is missing");
  return absl::InternalError(absl::StrCat("BlobDB: ", status.ToString()));
}

rocksdb::Options MakeOptions() {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.enable_blob_files = true;
  options.min_blob_size = 0;
  options.blob_file_size = kBlobFileBytes;
  options.blob_compression_type = rocksdb::kNoCompression;
  options.compression = rocksdb::kNoCompression;
  options.use_direct_reads = true;
  options.use_direct_io_for_flush_and_compaction = true;
  options.writable_file_max_buffer_size = kWriteBytes;
  options.write_buffer_size = kMemtableBytes;
  options.max_write_buffer_number = kMemtables;
  options.max_background_jobs = kBackgroundJobs;
  options.info_log_level = rocksdb::WARN_LEVEL;
  return options;
}

}  // namespace

absl::StatusOr<std::shared_ptr<BlobDb>> BlobDb::Open(const std::string& dir, bool wal) {
  std::shared_ptr<BlobDb> db(new BlobDb(dir, wal));
  if (absl::Status status = db->Reopen(); !status.ok()) return status;
  return db;
}

absl::Status BlobDb::Reopen() {
  rocksdb::DB* db = nullptr;
  const rocksdb::Status status = rocksdb::DB::Open(MakeOptions(), dir_, &db);
  db_.reset(db);
  return ToStatus(status);
}

absl::Status BlobDb::Clear() {
  if (absl::Status status = ToStatus(db_->Close()); !status.ok()) return status;
  db_.reset();
  if (absl::Status status = ToStatus(rocksdb::DestroyDB(dir_, MakeOptions())); !status.ok()) return status;
  return Reopen();
}

absl::Status BlobDb::Put(absl::Span<const std::string> keys, absl::Span<std::byte* const> values, size_t value_bytes) {
  rocksdb::WriteBatch batch;
  for (size_t i = 0; i < keys.size(); ++i) {
    const rocksdb::Slice value(reinterpret_cast<const char*>(values[i]), value_bytes);
    if (absl::Status status = ToStatus(batch.Put(keys[i], value)); !status.ok()) return status;
  }
  rocksdb::WriteOptions write;
  write.disableWAL = !wal_;
  write.sync = wal_;
  return ToStatus(db_->Write(write, &batch));
}

absl::Status BlobDb::Get(absl::Span<const std::string> keys, absl::Span<std::byte* const> values, size_t value_bytes) {
  const std::vector<rocksdb::Slice> slices(keys.begin(), keys.end());
  std::vector<rocksdb::PinnableSlice> found(keys.size());
  std::vector<rocksdb::Status> statuses(keys.size());
  db_->MultiGet(rocksdb::ReadOptions(), db_->DefaultColumnFamily(), slices.size(), slices.data(), found.data(),
                statuses.data());
  for (size_t i = 0; i < keys.size(); ++i) {
    if (absl::Status status = ToStatus(statuses[i]); !status.ok()) return status;
    if (found[i].size() != value_bytes) {
      return absl::DataLossError(absl::StrCat("a value of ", found[i].size(), " bytes instead of ", value_bytes));
    }
    std::memcpy(values[i], found[i].data(), value_bytes);
  }
  return absl::OkStatus();
}

absl::Status BlobDb::Flush() {
  rocksdb::FlushOptions flush;
  flush.wait = true;
  return ToStatus(db_->Flush(flush));
}

}  // namespace quarry::peers
