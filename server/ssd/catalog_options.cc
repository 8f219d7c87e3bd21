#include "server/ssd/catalog_options.h"

#include <cstdarg>

#include "rocksdb/env.h"
#include "rocksdb/filter_policy.h"
#include "rocksdb/statistics.h"
#include "rocksdb/table.h"
#include "rocksdb/write_buffer_manager.h"
#include "server/ssd/catalog_format.h"

namespace quarry::server {
namespace {

constexpr uint64_t kKiB = 1 << 10;
constexpr uint64_t kMiB = 1 << 20;

// A reader leaves the directory as it is, its log included.
class NoLog : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char* /*format*/, va_list /*arguments*/) override {}
};

rocksdb::BlockBasedTableOptions TableOptions(const std::shared_ptr<rocksdb::Cache>& cache, uint64_t block_bytes) {
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = cache;
  table.block_size = block_bytes;
  table.cache_index_and_filter_blocks = true;  // so that they count
  table.pin_l0_filter_and_index_blocks_in_cache = true;
  return table;
}

rocksdb::ColumnFamilyOptions FamilyOptions(uint64_t memtable_bytes, rocksdb::CompressionType compression) {
  rocksdb::ColumnFamilyOptions family;
  family.write_buffer_size = memtable_bytes;
  family.max_write_buffer_number = 2;
  family.compression = compression;
  family.level_compaction_dynamic_level_bytes = true;  // at most about a tenth of the disk for what is deleted
  return family;
}

rocksdb::ColumnFamilyOptions Small(const RocksOptions& rocks) {
  rocksdb::ColumnFamilyOptions family = FamilyOptions(kMiB, rocksdb::kNoCompression);
  family.table_factory.reset(rocksdb::NewBlockBasedTableFactory(TableOptions(rocks.cache, 16 * kKiB)));
  return family;
}

// Written in the order of the keys and read by scans alone: no filters, large blocks. LZ4 takes
// a record from 77 bytes to 52, most of which is its hash, and costs a scan nothing measurable.
rocksdb::ColumnFamilyOptions Blocks(const RocksOptions& rocks, uint64_t memtable_bytes) {
  rocksdb::ColumnFamilyOptions family = FamilyOptions(memtable_bytes, rocksdb::kLZ4Compression);
  family.target_file_size_base = 16 * kMiB;
  family.max_bytes_for_level_base = 64 * kMiB;
  family.table_factory.reset(rocksdb::NewBlockBasedTableFactory(TableOptions(rocks.cache, 64 * kKiB)));
  return family;
}

// Read by key, and what is read goes to DRAM: a filter, so that a level without it costs no
// read, and blocks that hold few payloads besides the one that is asked for.
rocksdb::ColumnFamilyOptions Payloads(const RocksOptions& rocks, uint64_t memtable_bytes) {
  rocksdb::ColumnFamilyOptions family = FamilyOptions(memtable_bytes, rocksdb::kNoCompression);
  family.target_file_size_base = 64 * kMiB;
  family.max_bytes_for_level_base = 256 * kMiB;
  rocksdb::BlockBasedTableOptions table = TableOptions(rocks.cache, 16 * kKiB);
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  family.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return family;
}

rocksdb::DBOptions DatabaseOptions(const CatalogOptions& options) {
  rocksdb::DBOptions db;
  if (options.env != nullptr) db.env = options.env;
  db.create_if_missing = !options.read_only;
  db.create_missing_column_families = !options.read_only;
  db.paranoid_checks = true;
  db.max_background_jobs = 2;
  db.max_subcompactions = 1;
  db.max_open_files = 512;
  db.max_total_wal_size = 64 * kMiB;  // families that are seldom written keep no old log alive
  db.max_manifest_file_size = 16 * kMiB;
  db.bytes_per_sync = kMiB;
  db.compaction_readahead_size = 2 * kMiB;
  db.max_log_file_size = kMiB;
  db.keep_log_file_num = 4;
  db.stats_dump_period_sec = 0;
  db.stats_persist_period_sec = 0;
  db.statistics = rocksdb::CreateDBStatistics();
  db.statistics->set_stats_level(rocksdb::StatsLevel::kExceptHistogramOrTimers);
  if (options.read_only) db.info_log = std::make_shared<NoLog>();
  return db;
}

}  // namespace

RocksOptions MakeRocksOptions(const CatalogOptions& options) {
  RocksOptions rocks;
  rocksdb::LRUCacheOptions cache;
  cache.capacity = options.memory_bytes;
  cache.num_shard_bits = 2;  // few threads; and large blocks need room in a shard
  rocks.cache = rocksdb::NewLRUCache(cache);
  rocks.db = DatabaseOptions(options);
  rocks.db.write_buffer_manager = std::make_shared<rocksdb::WriteBufferManager>(options.memory_bytes / 2, rocks.cache);
  // Of the two large families, one memtable that is written and one that is flushed each.
  const uint64_t memtable_bytes = options.memory_bytes / 8;
  const rocksdb::ColumnFamilyOptions families[kCatalogFamilies] = {
      Small(rocks), Small(rocks), Small(rocks), Blocks(rocks, memtable_bytes), Payloads(rocks, memtable_bytes)};
  for (size_t i = 0; i < kCatalogFamilies; ++i) rocks.families.emplace_back(kCatalogFamilyNames[i], families[i]);
  return rocks;
}

rocksdb::ReadOptions ScanOptions() {
  rocksdb::ReadOptions read;
  read.fill_cache = false;
  read.readahead_size = 2 * kMiB;
  return read;
}

}  // namespace quarry::server
