// FAKE. RocksDB's side of a disk: appends, syncs and reads fail when a test says so, and what
// was appended behind the last sync of a file is lost with the power. Beneath is the real file
// system.
#ifndef QUARRY_TESTS_FAKES_FAKE_CATALOG_DISK_H_
#define QUARRY_TESTS_FAKES_FAKE_CATALOG_DISK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "rocksdb/env.h"
#include "rocksdb/file_system.h"
#include "tests/fakes/fake_power.h"

namespace quarry::fakes {

// Thread-safe. Outlives the catalogs that use its env.
class FakeCatalogDisk {
 public:
  // With a power, no sync goes to the real disk.
  explicit FakeCatalogDisk(FakePower* power = nullptr);
  ~FakeCatalogDisk();

  rocksdb::Env* env() const { return env_.get(); }

  // Of all files from now on; IOStatus::OK() ends it.
  void FailAppends(rocksdb::IOStatus status);
  void FailSyncs(rocksdb::IOStatus status);
  void FailReads(rocksdb::IOStatus status);
  uint64_t failed() const;

  // Once the catalog is closed: what was appended behind a file's last sync is cut off, and
  // files that were made since their directory's last sync are gone.
  void LoseUnsynced(Loss loss, uint64_t seed);

 private:
  class System;
  class AppendedFile;
  class ReadFile;
  class Directory;

  struct File {
    uint64_t written = 0;
    uint64_t synced = 0;
    bool in_directory = false;
  };

  rocksdb::IOStatus Check(const rocksdb::IOStatus& fault) const;
  rocksdb::IOStatus CheckPower() const;
  bool SyncFile(const std::string& path);
  void SyncDirectory(const std::string& path);

  FakePower* const power_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  rocksdb::IOStatus append_status_, sync_status_, read_status_;
  mutable uint64_t failed_ = 0;
  std::map<std::string, File> files_;  // by path; written since the fake was made

  std::unique_ptr<rocksdb::Env> env_;
};

}  // namespace quarry::fakes

#endif  // QUARRY_TESTS_FAKES_FAKE_CATALOG_DISK_H_
