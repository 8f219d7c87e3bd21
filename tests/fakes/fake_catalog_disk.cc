#include "tests/fakes/fake_catalog_disk.h"

#include <unistd.h>

#include <filesystem>
#include <random>
#include <utility>
#include <vector>

namespace quarry::fakes {
namespace {

using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

IOStatus NoPower() { return IOStatus::IOError("no power"); }

}  // namespace

class FakeCatalogDisk::AppendedFile final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  AppendedFile(FakeCatalogDisk* disk, std::string path, std::unique_ptr<rocksdb::FSWritableFile> real)
      : FSWritableFileOwnerWrapper(std::move(real)), disk_(disk), path_(std::move(path)) {}

  IOStatus Append(const Slice& bytes, const IOOptions& options, IODebugContext* dbg) override {
    if (IOStatus status = disk_->Check(disk_->append_status_); !status.ok()) return status;
    return Count(bytes.size(), FSWritableFileOwnerWrapper::Append(bytes, options, dbg));
  }
  IOStatus Append(const Slice& bytes, const IOOptions& options, const rocksdb::DataVerificationInfo& sums,
                  IODebugContext* dbg) override {
    if (IOStatus status = disk_->Check(disk_->append_status_); !status.ok()) return status;
    return Count(bytes.size(), FSWritableFileOwnerWrapper::Append(bytes, options, sums, dbg));
  }
  IOStatus Sync(const IOOptions& options, IODebugContext* dbg) override {
    if (IOStatus status = disk_->Check(disk_->sync_status_); !status.ok()) return status;
    if (disk_->power_ == nullptr) return FSWritableFileOwnerWrapper::Sync(options, dbg);
    return disk_->SyncFile(path_) ? IOStatus::OK() : NoPower();
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* dbg) override { return Sync(options, dbg); }
  IOStatus RangeSync(uint64_t /*offset*/, uint64_t /*bytes*/, const IOOptions& /*options*/,
                     IODebugContext* /*dbg*/) override {
    return IOStatus::OK();  // promises nothing
  }

 private:
  IOStatus Count(size_t bytes, IOStatus status) {
    if (status.ok()) {
      std::lock_guard<std::mutex> lock(disk_->mutex_);
      disk_->files_[path_].written += bytes;
    }
    return status;
  }

  FakeCatalogDisk* const disk_;
  const std::string path_;
};

class FakeCatalogDisk::ReadFile final : public rocksdb::FSRandomAccessFileOwnerWrapper {
 public:
  ReadFile(FakeCatalogDisk* disk, std::unique_ptr<rocksdb::FSRandomAccessFile> real)
      : FSRandomAccessFileOwnerWrapper(std::move(real)), disk_(disk) {}

  IOStatus Read(uint64_t offset, size_t bytes, const IOOptions& options, Slice* result, char* scratch,
                IODebugContext* dbg) const override {
    if (IOStatus status = disk_->Check(disk_->read_status_); !status.ok()) return status;
    return FSRandomAccessFileOwnerWrapper::Read(offset, bytes, options, result, scratch, dbg);
  }

 private:
  FakeCatalogDisk* const disk_;
};

class FakeCatalogDisk::Directory final : public rocksdb::FSDirectoryWrapper {
 public:
  Directory(FakeCatalogDisk* disk, std::string path, std::unique_ptr<rocksdb::FSDirectory> real)
      : FSDirectoryWrapper(std::move(real)), disk_(disk), path_(std::move(path)) {}

  IOStatus Fsync(const IOOptions& options, IODebugContext* dbg) override {
    return FsyncWithDirOptions(options, dbg, rocksdb::DirFsyncOptions());
  }
  IOStatus FsyncWithDirOptions(const IOOptions& options, IODebugContext* dbg,
                               const rocksdb::DirFsyncOptions& what) override {
    if (disk_->power_ == nullptr) return FSDirectoryWrapper::FsyncWithDirOptions(options, dbg, what);
    if (!disk_->power_->BeforeSync()) return NoPower();
    disk_->SyncDirectory(path_);
    return IOStatus::OK();
  }

 private:
  FakeCatalogDisk* const disk_;
  const std::string path_;
};

class FakeCatalogDisk::System final : public rocksdb::FileSystemWrapper {
 public:
  explicit System(FakeCatalogDisk* disk) : FileSystemWrapper(rocksdb::FileSystem::Default()), disk_(disk) {}
  const char* Name() const override { return "FakeCatalogDisk"; }

  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* file, IODebugContext* dbg) override {
    if (IOStatus status = disk_->CheckPower(); !status.ok()) return status;
    IOStatus status = target()->NewWritableFile(path, options, file, dbg);
    if (!status.ok()) return status;
    std::lock_guard<std::mutex> lock(disk_->mutex_);
    disk_->files_[path] = File();
    *file = std::make_unique<AppendedFile>(disk_, path, std::move(*file));
    return status;
  }
  IOStatus NewRandomAccessFile(const std::string& path, const FileOptions& options,
                               std::unique_ptr<rocksdb::FSRandomAccessFile>* file, IODebugContext* dbg) override {
    IOStatus status = target()->NewRandomAccessFile(path, options, file, dbg);
    if (status.ok()) *file = std::make_unique<ReadFile>(disk_, std::move(*file));
    return status;
  }
  IOStatus NewDirectory(const std::string& path, const IOOptions& options,
                        std::unique_ptr<rocksdb::FSDirectory>* directory, IODebugContext* dbg) override {
    IOStatus status = target()->NewDirectory(path, options, directory, dbg);
    if (status.ok()) *directory = std::make_unique<Directory>(disk_, path, std::move(*directory));
    return status;
  }
  IOStatus DeleteFile(const std::string& path, const IOOptions& options, IODebugContext* dbg) override {
    if (IOStatus status = disk_->CheckPower(); !status.ok()) return status;
    std::lock_guard<std::mutex> lock(disk_->mutex_);
    disk_->files_.erase(path);
    return target()->DeleteFile(path, options, dbg);
  }
  // Taken to last at once, in its order with the others.
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions& options,
                      IODebugContext* dbg) override {
    if (IOStatus status = disk_->CheckPower(); !status.ok()) return status;
    std::lock_guard<std::mutex> lock(disk_->mutex_);
    if (auto file = disk_->files_.extract(from); !file.empty()) {
      file.mapped().in_directory = true;
      disk_->files_[to] = file.mapped();
    }
    return target()->RenameFile(from, to, options, dbg);
  }

 private:
  FakeCatalogDisk* const disk_;
};

FakeCatalogDisk::FakeCatalogDisk(FakePower* power)
    : power_(power), env_(rocksdb::NewCompositeEnv(std::make_shared<System>(this))) {}

FakeCatalogDisk::~FakeCatalogDisk() = default;

void FakeCatalogDisk::FailAppends(IOStatus status) {
  std::lock_guard<std::mutex> lock(mutex_);
  append_status_ = std::move(status);
}

void FakeCatalogDisk::FailSyncs(IOStatus status) {
  std::lock_guard<std::mutex> lock(mutex_);
  sync_status_ = std::move(status);
}

void FakeCatalogDisk::FailReads(IOStatus status) {
  std::lock_guard<std::mutex> lock(mutex_);
  read_status_ = std::move(status);
}

uint64_t FakeCatalogDisk::failed() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return failed_;
}

IOStatus FakeCatalogDisk::Check(const IOStatus& fault) const {
  if (IOStatus status = CheckPower(); !status.ok()) return status;
  std::lock_guard<std::mutex> lock(mutex_);
  if (!fault.ok()) ++failed_;
  return fault;
}

IOStatus FakeCatalogDisk::CheckPower() const { return power_ == nullptr || power_->on() ? IOStatus::OK() : NoPower(); }

bool FakeCatalogDisk::SyncFile(const std::string& path) {
  // What is appended by others meanwhile is not covered.
  std::lock_guard<std::mutex> lock(mutex_);
  if (!power_->BeforeSync()) return false;
  files_[path].synced = files_[path].written;
  return true;
}

void FakeCatalogDisk::SyncDirectory(const std::string& path) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [name, file] : files_) {
    if (std::filesystem::path(name).parent_path() == std::filesystem::path(path)) file.in_directory = true;
  }
}

void FakeCatalogDisk::LoseUnsynced(Loss loss, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::lock_guard<std::mutex> lock(mutex_);
  if (loss == Loss::kNone) return;
  for (const auto& [path, file] : files_) {
    if (!file.in_directory && (loss == Loss::kAll || random() % 2 == 0)) {
      std::filesystem::remove(path);
      continue;
    }
    const uint64_t kept = loss == Loss::kAll ? 0 : random() % (file.written - file.synced + 1);
    std::error_code gone;
    if (std::filesystem::file_size(path, gone) > file.synced + kept && !gone) {
      std::filesystem::resize_file(path, file.synced + kept);
    }
  }
  files_.clear();
}

}  // namespace quarry::fakes
