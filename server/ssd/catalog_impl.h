// What Catalog and CatalogBatch are made of.
#ifndef QUARRY_SERVER_SSD_CATALOG_IMPL_H_
#define QUARRY_SERVER_SSD_CATALOG_IMPL_H_

#include <memory>
#include <string>
#include <vector>

#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/statistics.h"
#include "rocksdb/write_batch.h"
#include "server/ssd/catalog.h"
#include "server/ssd/catalog_format.h"
#include "server/ssd/catalog_options.h"

namespace quarry::server {

struct CatalogBatch::Impl {
  void Note(const rocksdb::Status& added) {
    if (status.ok()) status = added;
  }

  rocksdb::WriteBatch writes;
  rocksdb::Status status;  // the first that was not ok
};

// Keeps other processes, and this one, from opening a directory a second time.
class DirectoryLock {
 public:
  // FailedPrecondition: another has it.
  static absl::StatusOr<std::unique_ptr<DirectoryLock>> Take(rocksdb::Env* env, const std::string& dir);
  ~DirectoryLock();

 private:
  DirectoryLock(rocksdb::Env* env, rocksdb::FileLock* lock) : env_(env), lock_(lock) {}

  rocksdb::Env* env_;
  rocksdb::FileLock* lock_;
};

struct Catalog::Impl {
  ~Impl();

  rocksdb::ColumnFamilyHandle* family(CatalogFamily family) const { return families[static_cast<size_t>(family)]; }

  std::string dir;
  RocksOptions rocks;
  std::unique_ptr<DirectoryLock> lock;  // read_only; otherwise RocksDB has it
  std::unique_ptr<rocksdb::DB> db;
  std::vector<rocksdb::ColumnFamilyHandle*> families;  // by CatalogFamily; of db
  bool read_only = false;
  bool wiped = false;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SSD_CATALOG_IMPL_H_
