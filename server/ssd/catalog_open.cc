#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/ssd/catalog_impl.h"
#include "server/ssd/catalog_status.h"

namespace quarry::server {
namespace {

absl::Status Foreign(const std::string& dir) {
  return absl::FailedPreconditionError(absl::StrCat(dir, ": holds a RocksDB database that is not Quarry's catalog"));
}

absl::Status Newer(const std::string& dir, uint32_t version) {
  return absl::FailedPreconditionError(absl::StrCat(dir, ": the catalog has format ", version,
                                                    ", this version knows formats up to ", Catalog::kFormatVersion,
                                                    "; --ssd-on-newer=wipe empties the disk"));
}

// RocksDB says this in words only.
bool IsHeldByAnother(const rocksdb::Status& status) {
  const std::string text = status.ToString();
  return status.IsIOError() &&
         (absl::StrContains(text, "lock hold by current process") || absl::StrContains(text, "While lock file"));
}

absl::Status OpenError(const rocksdb::Status& status, const std::string& dir) {
  if (!IsHeldByAnother(status)) return ToStatus(status, dir);
  return absl::FailedPreconditionError(absl::StrCat(dir, ": in use by another process (", status.ToString(), ")"));
}

// A database with its handles, which must go first.
struct Opened {
  ~Opened() {
    for (rocksdb::ColumnFamilyHandle* family : families) db->DestroyColumnFamilyHandle(family).PermitUncheckedError();
  }
  std::unique_ptr<rocksdb::DB> db;
  std::vector<rocksdb::ColumnFamilyHandle*> families;
};

bool IsEmpty(rocksdb::DB* db, rocksdb::ColumnFamilyHandle* family) {
  const std::unique_ptr<rocksdb::Iterator> it(db->NewIterator(rocksdb::ReadOptions(), family));
  it->SeekToFirst();
  return !it->Valid() && it->status().ok();
}

// Nothing: it has none.
absl::StatusOr<std::optional<uint32_t>> ReadFormat(rocksdb::DB* db, const std::string& dir) {
  std::string value;
  const rocksdb::Status status = db->Get(rocksdb::ReadOptions(), kCatalogFormatKey, &value);
  if (status.IsNotFound()) return std::nullopt;
  if (!status.ok()) return ToStatus(status, dir);
  const std::optional<uint32_t> version = DecodeFormat(value);
  if (!version.has_value()) return Foreign(dir);
  return version;
}

// The format of what is there, before anything of it is touched: a newer one may have families
// and files that RocksDB as we set it would refuse or change. Nothing: there is none yet.
absl::StatusOr<std::optional<uint32_t>> ProbeFormat(const std::string& dir, CatalogOptions options) {
  options.read_only = true;
  const RocksOptions rocks = MakeRocksOptions(options);
  const rocksdb::Status exists = rocks.db.env->FileExists(absl::StrCat(dir, "/CURRENT"));
  if (exists.IsNotFound()) return std::nullopt;
  if (!exists.ok()) return ToStatus(exists, dir);
  Opened opened;
  rocksdb::DB* db = nullptr;
  const rocksdb::Status status =
      rocksdb::DB::OpenForReadOnly(rocks.db, dir, {rocks.families.front()}, &opened.families, &db);
  if (!status.ok()) return OpenError(status, dir);
  opened.db.reset(db);
  auto version = ReadFormat(db, dir);
  if (version.ok() && !version->has_value() && !IsEmpty(db, opened.families.front())) return Foreign(dir);
  return version;
}

rocksdb::Status OpenDatabase(const std::string& dir, const RocksOptions& rocks, bool read_only,
                             std::vector<rocksdb::ColumnFamilyHandle*>* families, std::unique_ptr<rocksdb::DB>* out) {
  rocksdb::DB* db = nullptr;
  rocksdb::Status status = read_only ? rocksdb::DB::OpenForReadOnly(rocks.db, dir, rocks.families, families, &db)
                                     : rocksdb::DB::Open(rocks.db, dir, rocks.families, families, &db);
  out->reset(db);
  return status;
}

// A database without a format has just been made, or was about to be when its process died.
absl::Status WriteFormat(rocksdb::DB* db, const std::vector<rocksdb::ColumnFamilyHandle*>& families,
                         const std::string& dir) {
  for (rocksdb::ColumnFamilyHandle* family : families) {
    if (!IsEmpty(db, family)) return Foreign(dir);
  }
  rocksdb::WriteOptions write;
  write.sync = true;
  return ToStatus(db->Put(write, kCatalogFormatKey, EncodeFormat(Catalog::kFormatVersion)), dir);
}

// CatalogBatch relies on it.
absl::Status CheckFamilyNumbers(const std::vector<rocksdb::ColumnFamilyHandle*>& families, const std::string& dir) {
  for (size_t i = 0; i < families.size(); ++i) {
    if (families[i]->GetID() != i) return Foreign(dir);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<DirectoryLock>> DirectoryLock::Take(rocksdb::Env* env, const std::string& dir) {
  rocksdb::FileLock* lock = nullptr;
  const rocksdb::Status status = env->LockFile(absl::StrCat(dir, "/LOCK"), &lock);
  if (!status.ok()) return OpenError(status, dir);
  return std::unique_ptr<DirectoryLock>(new DirectoryLock(env, lock));
}

DirectoryLock::~DirectoryLock() { env_->UnlockFile(lock_).PermitUncheckedError(); }

Catalog::Impl::~Impl() {
  for (rocksdb::ColumnFamilyHandle* each : families) db->DestroyColumnFamilyHandle(each).PermitUncheckedError();
}

absl::StatusOr<std::unique_ptr<Catalog>> Catalog::Open(const std::string& dir, const CatalogOptions& options) {
  const bool read_only = options.read_only;
  auto impl = std::make_unique<Impl>();
  impl->dir = dir;
  impl->rocks = MakeRocksOptions(options);
  impl->read_only = read_only;
  rocksdb::Env* const env = impl->rocks.db.env;
  const rocksdb::Status there =
      read_only ? env->FileExists(absl::StrCat(dir, "/CURRENT")) : env->CreateDirIfMissing(dir);
  if (!there.ok()) return ToStatus(there, dir);
  auto lock = DirectoryLock::Take(env, dir);
  if (!lock.ok()) return lock.status();
  const auto format = ProbeFormat(dir, options);
  if (!format.ok()) return format.status();
  const bool newer = format->value_or(0) > kFormatVersion;
  if (newer && (read_only || !options.wipe_newer)) return Newer(dir, **format);

  if (read_only) {
    impl->lock = *std::move(lock);
  } else {
    lock->reset();  // RocksDB takes it itself
  }
  if (newer) {
    const auto destroyed = rocksdb::DestroyDB(dir, rocksdb::Options(impl->rocks.db, rocksdb::ColumnFamilyOptions()));
    if (!destroyed.ok()) return OpenError(destroyed, dir);
    impl->wiped = true;
  }
  if (const auto opened = OpenDatabase(dir, impl->rocks, read_only, &impl->families, &impl->db); !opened.ok()) {
    return OpenError(opened, dir);
  }
  if (absl::Status checked = CheckFamilyNumbers(impl->families, dir); !checked.ok()) return checked;
  if (!read_only && (newer || !format->has_value())) {
    if (absl::Status written = WriteFormat(impl->db.get(), impl->families, dir); !written.ok()) return written;
  }
  return std::unique_ptr<Catalog>(new Catalog(std::move(impl)));
}

}  // namespace quarry::server
