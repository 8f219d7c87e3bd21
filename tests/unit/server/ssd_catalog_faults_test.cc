// Processes that die, disks that fill up, bytes that change.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <thread>

#include "rocksdb/env.h"
#include "tests/unit/server/catalog_testing.h"

namespace quarry::server {
namespace {

using ::testing::HasSubstr;

// catalog_writer.cc as a process, killed with this.
class Writer {
 public:
  explicit Writer(std::string dir) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    std::string program = CATALOG_WRITER;
    char* const arguments[] = {program.data(), dir.data(), nullptr};
    EXPECT_EQ(posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    out_ = fdopen(ends[0], "r");
  }
  ~Writer() {
    Kill();
    std::fclose(out_);
  }
  // The next number that it prints; -1 after the last.
  int64_t Next() {
    unsigned number = 0;
    return std::fscanf(out_, "%u\n", &number) == 1 ? int64_t{number} : -1;
  }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  FILE* out_ = nullptr;
};

TEST(CatalogCrashTest, WhatAKilledProcessHadCommittedIsThere) {
  for (const int64_t enough : {0, 40, 500}) {
    TempDir dir;
    Writer writer(dir.path());
    int64_t last = -1;
    while (last < enough) {
      const int64_t next = writer.Next();
      ASSERT_EQ(next, last + 1);
      last = next;
    }
    writer.Kill();
    for (int64_t next = writer.Next(); next >= 0; next = writer.Next()) last = next;

    const auto catalog = OpenCatalog(dir.path());
    ASSERT_NE(catalog, nullptr);
    const std::vector<HeldRecord> records = Records(*catalog);
    ASSERT_FALSE(records.empty());
    // One more may have been committed than it lived to say; nothing may be there in part.
    const uint64_t newest = records.back().fields.root;
    EXPECT_GE(newest, static_cast<uint64_t>(last));
    EXPECT_LE(newest, static_cast<uint64_t>(last) + 1);
    const uint64_t oldest = newest < 64 ? 0 : (newest / 16 - 3) * 16;
    ASSERT_EQ(records.size(), newest - oldest + 1);
    for (uint64_t n = oldest; n <= newest; ++n) {
      const CatalogRecord& record = records[n - oldest].fields;
      EXPECT_EQ(record.root, n);
      EXPECT_EQ(record.hash, std::to_string(n));
      EXPECT_EQ(catalog->ReadPayload(record.extent, record.page).value(), "header " + std::to_string(n));
    }
    if (oldest > 0) {
      EXPECT_TRUE(absl::IsNotFound(catalog->ReadPayload(static_cast<uint32_t>(oldest / 16 - 1), 0).status()));
    }
  }
}

TEST(CatalogCrashTest, ADirectoryThatAnotherProcessHasOpenIsRefused) {
  TempDir dir;
  Writer writer(dir.path());
  ASSERT_EQ(writer.Next(), 0);
  for (const bool read_only : {false, true}) {
    const auto catalog = Catalog::Open(dir.path(), {.wipe_newer = true, .read_only = read_only});
    EXPECT_TRUE(absl::IsFailedPrecondition(catalog.status())) << catalog.status();
    EXPECT_THAT(std::string(catalog.status().message()), HasSubstr(dir.path() + ": in use by another process"));
  }
  writer.Kill();
  EXPECT_NE(OpenCatalog(dir.path()), nullptr);
}

// Counts the syncs of logs, and has no room for what is appended while `full`.
class DiskEnv : public rocksdb::EnvWrapper {
 public:
  DiskEnv() : EnvWrapper(rocksdb::Env::Default()) {}
  const char* Name() const override { return "DiskEnv"; }
  rocksdb::Status NewWritableFile(const std::string& name, std::unique_ptr<rocksdb::WritableFile>* file,
                                  const rocksdb::EnvOptions& options) override {
    rocksdb::Status status = target()->NewWritableFile(name, file, options);
    if (status.ok()) *file = std::make_unique<File>(this, name, std::move(*file));
    return status;
  }

  std::atomic<bool> full = false;
  std::atomic<int> log_syncs = 0;

 private:
  class File : public rocksdb::WritableFileWrapper {
   public:
    File(DiskEnv* env, const std::string& name, std::unique_ptr<rocksdb::WritableFile> file)
        : WritableFileWrapper(file.get()),
          env_(env),
          is_log_(std::filesystem::path(name).extension() == ".log"),
          file_(std::move(file)) {}
    using WritableFileWrapper::Append;
    rocksdb::Status Append(const rocksdb::Slice& bytes) override {
      if (env_->full) return rocksdb::Status::NoSpace("no room");
      return WritableFileWrapper::Append(bytes);
    }

    rocksdb::Status Sync() override {
      if (is_log_) ++env_->log_syncs;
      return WritableFileWrapper::Sync();
    }

   private:
    DiskEnv* env_;
    bool is_log_;
    std::unique_ptr<rocksdb::WritableFile> file_;
  };
};

TEST(CatalogFaultsTest, ACommitIsSyncedWhenAsked) {
  TempDir dir;
  DiskEnv env;
  const auto catalog = OpenCatalog(dir.path(), {.env = &env});
  ASSERT_NE(catalog, nullptr);
  for (uint32_t i = 0; i < 6; ++i) {
    CatalogBatch batch;
    batch.Put(TestRecord(1, i).fields);
    const bool sync = i % 2 == 1;
    const int before = env.log_syncs;
    ASSERT_TRUE(catalog->Commit(&batch, sync).ok());
    EXPECT_EQ(env.log_syncs - before, sync ? 1 : 0) << i;
  }
}

TEST(CatalogFaultsTest, AFullDiskIsSaidAndOnceThereIsRoomItGoesOn) {
  TempDir dir;
  DiskEnv env;
  const auto put = [](Catalog* catalog, uint32_t page) {
    CatalogBatch batch;
    batch.Put(TestRecord(1, page).fields);
    return catalog->Commit(&batch, true);
  };
  {
    const auto catalog = OpenCatalog(dir.path(), {.env = &env});
    ASSERT_NE(catalog, nullptr);
    EXPECT_TRUE(put(catalog.get(), 1).ok());
    env.full = true;
    EXPECT_EQ(put(catalog.get(), 2).code(), absl::StatusCode::kResourceExhausted);
    EXPECT_FALSE(put(catalog.get(), 3).ok());
    EXPECT_THAT(Places(Records(*catalog)), ::testing::Contains(::testing::Pair(1, 1)));  // reads go on
    env.full = false;
    absl::Status resumed = catalog->Resume();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (absl::IsUnavailable(resumed) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      resumed = catalog->Resume();
    }
    EXPECT_TRUE(resumed.ok()) << resumed;
    const absl::Status again = put(catalog.get(), 4);
    EXPECT_TRUE(again.ok()) << again;
  }
  const auto places = Places(Records(*OpenCatalog(dir.path())));
  EXPECT_THAT(places, ::testing::IsSupersetOf({std::pair(1u, 1u), std::pair(1u, 4u)}));
  EXPECT_THAT(places, ::testing::Not(::testing::Contains(::testing::Pair(1, 3))));
}

// The largest file of RocksDB's tables.
std::filesystem::path LargestTable(const std::string& dir) {
  std::filesystem::path largest;
  for (const auto& file : std::filesystem::directory_iterator(dir)) {
    if (file.path().extension() != ".sst") continue;
    if (largest.empty() || file.file_size() > std::filesystem::file_size(largest)) largest = file.path();
  }
  return largest;
}

TEST(CatalogFaultsTest, BytesThatChangedCostWhatLiesAboutThem) {
  constexpr uint32_t kExtents = 400;
  TempDir dir;
  {
    const auto catalog = OpenCatalog(dir.path());
    CatalogBatch batch;
    for (uint32_t extent = 0; extent < kExtents; ++extent) {
      for (uint32_t page = 0; page < 100; ++page) batch.Put(TestRecord(extent, page).fields);
    }
    ASSERT_TRUE(catalog->Commit(&batch, true).ok());
  }
  ASSERT_EQ(Records(*OpenCatalog(dir.path())).size(), kExtents * 100);  // and now they are in a table
  const std::filesystem::path table = LargestTable(dir.path());
  ASSERT_FALSE(table.empty());
  {
    std::fstream file(table, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(table) / 2));
    file.write("changed", 7);
  }
  const auto catalog = OpenCatalog(dir.path());
  ASSERT_NE(catalog, nullptr);
  uint64_t unreadable = 0;
  const std::vector<HeldRecord> records = Records(*catalog, &unreadable);
  EXPECT_GE(unreadable, 1u);
  EXPECT_LT(records.size(), kExtents * 100);
  EXPECT_GT(records.size(), kExtents * 60);
  EXPECT_EQ(records.front(), TestRecord(0, 0));
  EXPECT_EQ(records.back(), TestRecord(kExtents - 1, 99));
  for (const HeldRecord& record : records) EXPECT_EQ(record, TestRecord(record.fields.extent, record.fields.page));
}

}  // namespace
}  // namespace quarry::server
