// How RocksDB is set for the catalog.
#ifndef QUARRY_SERVER_SSD_CATALOG_OPTIONS_H_
#define QUARRY_SERVER_SSD_CATALOG_OPTIONS_H_

#include <memory>
#include <vector>

#include "rocksdb/cache.h"
#include "rocksdb/db.h"
#include "rocksdb/options.h"
#include "server/ssd/catalog.h"

namespace quarry::server {

struct RocksOptions {
  rocksdb::DBOptions db;
  std::vector<rocksdb::ColumnFamilyDescriptor> families;  // by CatalogFamily
  std::shared_ptr<rocksdb::Cache> cache;                  // blocks, and what memtables take up
};

// With `read_only` nothing is created, nor logged.
RocksOptions MakeRocksOptions(const CatalogOptions& options);

// For going over a family once: in large reads, and not through the cache.
rocksdb::ReadOptions ScanOptions();

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SSD_CATALOG_OPTIONS_H_
