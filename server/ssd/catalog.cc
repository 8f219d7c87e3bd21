#include "server/ssd/catalog.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rocksdb/iterator.h"
#include "server/ssd/catalog_impl.h"
#include "server/ssd/catalog_status.h"

namespace quarry::server {
namespace {

absl::string_view AsView(const rocksdb::Slice& slice) { return {slice.data(), slice.size()}; }

// Visits from where `it` is to where it ends or fails.
template <typename Decode, typename Visit>
void Walk(rocksdb::Iterator* it, Decode decode, Visit visit, uint64_t* unreadable) {
  for (; it->Valid(); it->Next()) {
    auto decoded = decode(AsView(it->key()), AsView(it->value()));
    if (decoded.has_value()) {
      visit(*std::move(decoded));
    } else {
      ++*unreadable;
    }
  }
}

uint64_t Property(rocksdb::DB* db, const std::vector<rocksdb::ColumnFamilyHandle*>& families, const std::string& name) {
  uint64_t sum = 0;
  for (rocksdb::ColumnFamilyHandle* family : families) {
    uint64_t value = 0;
    if (db->GetIntProperty(family, name, &value)) sum += value;
  }
  return sum;
}

}  // namespace

Catalog::Catalog(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Catalog::~Catalog() = default;

bool Catalog::wiped() const { return impl_->wiped; }

absl::Status Catalog::ForEachNamespace(const std::function<void(CatalogNamespace)>& visit, uint64_t* unreadable) const {
  const std::unique_ptr<rocksdb::Iterator> it(
      impl_->db->NewIterator(ScanOptions(), impl_->family(CatalogFamily::kNamespaces)));
  it->SeekToFirst();
  Walk(it.get(), DecodeNamespace, visit, unreadable);
  return ToStatus(it->status(), impl_->dir);
}

absl::Status Catalog::ForEachExtent(const std::function<void(CatalogExtent)>& visit, uint64_t* unreadable) const {
  const std::unique_ptr<rocksdb::Iterator> it(
      impl_->db->NewIterator(ScanOptions(), impl_->family(CatalogFamily::kExtents)));
  it->SeekToFirst();
  Walk(it.get(), DecodeExtent, visit, unreadable);
  return ToStatus(it->status(), impl_->dir);
}

absl::Status Catalog::ForEachRecord(const std::function<void(const CatalogRecord&)>& visit,
                                    uint64_t* unreadable) const {
  const std::unique_ptr<rocksdb::Iterator> it(
      impl_->db->NewIterator(ScanOptions(), impl_->family(CatalogFamily::kBlocks)));
  it->SeekToFirst();
  uint64_t extent = 0;  // all before it has been read or passed over
  // Where a block of RocksDB's has lost its sum, the scan goes on one extent further, then two,
  // four and so on: a bad block costs what lies about it, and a bad file not a try for each extent.
  for (uint64_t step = 1;; step *= 2) {
    Walk(
        it.get(), DecodeRecord,
        [&](const CatalogRecord& record) {
          extent = record.extent;
          step = 1;
          visit(record);
        },
        unreadable);
    extent += step;
    if (!it->status().IsCorruption() || extent > UINT32_MAX) return ToStatus(it->status(), impl_->dir);
    ++*unreadable;
    it->Seek(NumberKey(static_cast<uint32_t>(extent)));
  }
}

absl::Status Catalog::ForEachRecordOf(uint32_t extent, const std::function<void(const CatalogRecord&)>& visit) const {
  const std::unique_ptr<rocksdb::Iterator> it(
      impl_->db->NewIterator(ScanOptions(), impl_->family(CatalogFamily::kBlocks)));
  for (it->Seek(NumberKey(extent)); it->Valid(); it->Next()) {
    if (AsView(it->key()).substr(0, sizeof extent) != NumberKey(extent)) break;
    const std::optional<CatalogRecord> record = DecodeRecord(AsView(it->key()), AsView(it->value()));
    if (!record)
      return absl::DataLossError(absl::StrCat(impl_->dir, ": a record of extent ", extent, " is unreadable"));
    visit(*record);
  }
  return ToStatus(it->status(), impl_->dir);
}

absl::Status Catalog::Commit(CatalogBatch* batch, bool sync) {
  const CatalogBatch taken = std::exchange(*batch, CatalogBatch());
  if (impl_->read_only) return absl::FailedPreconditionError(absl::StrCat(impl_->dir, ": opened to read only"));
  if (!taken.impl_->status.ok()) return ToStatus(taken.impl_->status, impl_->dir);
  rocksdb::WriteOptions write;
  write.sync = sync;
  return ToStatus(impl_->db->Write(write, &taken.impl_->writes), impl_->dir);
}

absl::StatusOr<std::string> Catalog::ReadPayload(uint32_t extent, uint32_t page) const {
  rocksdb::ReadOptions read;
  read.fill_cache = false;  // it goes to DRAM, where it is found from then on
  rocksdb::PinnableSlice value;
  const rocksdb::Status status =
      impl_->db->Get(read, impl_->family(CatalogFamily::kPayloads), PlaceKey(extent, page), &value);
  if (!status.ok()) return ToStatus(status, absl::StrCat(impl_->dir, ": payload at ", extent, "/", page));
  if (value.empty() || value[0] != kPayloadVersion) {
    return absl::DataLossError(absl::StrCat(impl_->dir, ": payload at ", extent, "/", page, " is of another version"));
  }
  return std::string(value.data() + 1, value.size() - 1);
}

absl::Status Catalog::Resume() { return ToStatus(impl_->db->Resume(), impl_->dir); }

CatalogStats Catalog::stats() const {
  CatalogStats stats;
  const rocksdb::Statistics& statistics = *impl_->rocks.db.statistics;
  stats.wal_bytes = statistics.getTickerCount(rocksdb::WAL_FILE_BYTES);
  stats.flush_bytes = statistics.getTickerCount(rocksdb::FLUSH_WRITE_BYTES);
  stats.compaction_bytes = statistics.getTickerCount(rocksdb::COMPACT_WRITE_BYTES);
  std::vector<rocksdb::Env::FileAttributes> files;
  impl_->rocks.db.env->GetChildrenFileAttributes(impl_->dir, &files).PermitUncheckedError();
  for (const auto& file : files) stats.bytes_on_disk += file.size_bytes;
  stats.memory_bytes = impl_->rocks.cache->GetUsage() +
                       Property(impl_->db.get(), impl_->families, rocksdb::DB::Properties::kEstimateTableReadersMem);
  stats.records =
      Property(impl_->db.get(), {impl_->family(CatalogFamily::kBlocks)}, rocksdb::DB::Properties::kEstimateNumKeys);
  return stats;
}

}  // namespace quarry::server
