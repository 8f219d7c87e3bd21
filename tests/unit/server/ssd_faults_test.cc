// A disk that fails while it is used: that costs what it was to write or to read, and once it is
// well again it is used again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "tests/unit/server/ssd_testing.h"

namespace quarry::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;
using Outcome = SsdRead::Outcome;
using Kind = IoRequest::Kind;

class SsdFaultsTest : public ::testing::Test {
 protected:
  // After an error nothing is written for a while.
  void LetPausePass() { disk_.clock.AdvanceMs(RecordLog::kPauseNs / kNsPerMs + 1); }
  // Writes a block, again and again, until one gets there.
  bool RecoversWith(uint64_t first_id, uint32_t bytes) {
    uint64_t id = first_id;
    return Until([&] {
      LetPausePass();
      disk_.Write({id}, bytes);
      return disk_.Has(id++);
    });
  }
  std::string LastError() { return disk_.disk().stats().log.last_error; }

  DiskHarness disk_;
};

// ------------------------------------------------------------ a disk that is full

TEST_F(SsdFaultsTest, WithoutRoomForAFileWritingPausesAndReadingGoesOn) {
  disk_.Open();
  disk_.Write(Range(0, 30), kLarge);
  disk_.faults.FailCreate(absl::ResourceExhaustedError("no room"));
  disk_.Write(Range(100, 30), kLarge);
  EXPECT_FALSE(disk_->CanWrite());
  EXPECT_THAT(LastError(), HasSubstr("no room"));
  EXPECT_FALSE(disk_.owner->failed().empty());
  EXPECT_EQ(disk_.disk().stats().log.errors, 1u);
  EXPECT_EQ(disk_.Good(Range(0, 30)), 30u);
  disk_.Write({200}, kLarge);  // at once
  EXPECT_FALSE(disk_.Has(200));
  LetPausePass();
  EXPECT_TRUE(disk_->CanWrite());
  disk_.Write({200}, 1 << 20);
  EXPECT_FALSE(disk_.Has(200));
  EXPECT_EQ(disk_.disk().stats().log.errors, 2u);
  disk_.faults.Heal();
  LetPausePass();
  disk_.Write(Range(300, 40), kLarge);
  EXPECT_EQ(disk_.Good(Range(300, 40)), 40u);
  disk_.Reopen();
  EXPECT_EQ(disk_.Good(Range(0, 30)), 30u);
}

TEST_F(SsdFaultsTest, WithoutRoomForTheCatalogWritingPausesAndGoesOnByItself) {
  disk_.Open();
  disk_.Write({1}, kLarge);
  disk_.Write({2}, kSmall);
  disk_.catalog_faults.FailAppends(rocksdb::IOStatus::NoSpace("no room"));
  disk_.Write({3}, kLarge);
  EXPECT_FALSE(disk_.Has(3));
  EXPECT_FALSE(disk_->CanWrite());
  EXPECT_THAT(LastError(), HasSubstr("no room"));
  EXPECT_EQ(disk_.Good({1, 2}), 2u);
  disk_.catalog_faults.FailAppends(rocksdb::IOStatus::OK());
  EXPECT_TRUE(RecoversWith(100, kLarge));
  EXPECT_TRUE(RecoversWith(200, kSmall));
  const auto held = disk_.owner->held();
  disk_.Reopen();
  EXPECT_THAT(disk_.owner->held(), ::testing::IsSupersetOf(held));
  EXPECT_EQ(disk_.Good(Range(0, 1000)), disk_.owner->held().size());
}

// ------------------------------------------------------------ errors

TEST_F(SsdFaultsTest, AWriteThatFailsCostsItsBlocksAndRetiresTheExtent) {
  disk_.Open();
  disk_.Write({1}, kLarge);
  const RecordPlace place = disk_.PlaceOf(1);
  disk_.faults.Fail(Kind::kWrite, EIO, 1, 1);
  disk_.Write({2}, kLarge);
  EXPECT_FALSE(disk_.Has(2));
  EXPECT_TRUE(disk_.owner->failed().contains(TestHash(2)));
  EXPECT_FALSE(disk_->CanWrite());
  EXPECT_THAT(LastError(), HasSubstr("writing to extent"));
  LetPausePass();
  disk_.Write({3}, kLarge);
  EXPECT_NE(disk_.PlaceOf(3).extent, place.extent);
  EXPECT_EQ(disk_.Good({1, 3}), 2u);
  // When it is emptied its file goes.
  ASSERT_TRUE(std::filesystem::exists(disk_.FileOf(place)));
  const uint64_t count = 2 * disk_.options.max_bytes / RecordBytes(kLarge);
  bool bad = true;
  for (uint64_t id = 100; id < 100 + count && bad; id += 8) {
    disk_.Write(Range(id, 8), kLarge);
    bad = false;
    for (const SsdExtentInfo& extent : disk_.disk().extents()) bad = bad || extent.bad;
  }
  EXPECT_FALSE(bad);
}

TEST_F(SsdFaultsTest, ASyncThatFailsCostsAllThatItDidNotCover) {
  disk_.Open();
  disk_.Write({1}, kLarge);
  disk_.faults.Hold(Kind::kSync);
  disk_.Send({2}, kLarge);
  std::thread first([&] { disk_->Flush(); });
  ASSERT_TRUE(Until([&] { return disk_.faults.held(Kind::kSync) == 1; }));
  // Written, and not part of what is being synced.
  disk_.Send({3}, kLarge);
  std::thread second([&] { disk_->Flush(); });
  ASSERT_TRUE(Until([&] { return disk_.disk().stats().io.in_flight <= 1; }));
  disk_.faults.Release(Kind::kSync, EIO);
  first.join();
  second.join();
  EXPECT_FALSE(disk_.Has(2));
  EXPECT_FALSE(disk_.Has(3));
  EXPECT_THAT(LastError(), HasSubstr("syncing extent"));
  LetPausePass();
  disk_.Write({4}, kLarge);
  EXPECT_NE(disk_.PlaceOf(4).extent, disk_.PlaceOf(1).extent);
  // Then the power goes, and what counts is there.
  disk_.power.Cut();
  disk_.Close();
  disk_.faults.LoseUnsynced(fakes::Loss::kAll, 0);
  disk_.catalog_faults.LoseUnsynced(fakes::Loss::kAll, 0);
  disk_.power.Restore();
  disk_.Open();
  EXPECT_EQ(disk_.Good({1, 4}), 2u);
}

TEST_F(SsdFaultsTest, AReadThatFailsIsSaid) {
  disk_.Open();
  disk_.Write({1}, kLarge);
  disk_.Write({2}, kSmall);
  disk_.Reopen();  // so that the small one is in a table
  disk_.faults.Fail(Kind::kRead, EIO);
  disk_.catalog_faults.FailReads(rocksdb::IOStatus::IOError("unreadable"));
  EXPECT_THAT(disk_.Read(1), Optional(Outcome::kIoError));
  EXPECT_THAT(disk_.Read(2), Optional(Outcome::kIoError));
  EXPECT_EQ(disk_.disk().stats().reader.errors, 2u);
  disk_.faults.Heal();
  disk_.catalog_faults.FailReads(rocksdb::IOStatus::OK());
  EXPECT_EQ(disk_.Good({1, 2}), 2u);
}

TEST_F(SsdFaultsTest, TransfersThatEndEarlyAreGoneOnWith) {
  disk_.Open();
  disk_.faults.Shorten(Kind::kWrite, 2 * kPageBytes);
  disk_.faults.Shorten(Kind::kRead, kPageBytes);
  disk_.Write(Range(0, 8), kLarge);
  EXPECT_EQ(disk_.Good(Range(0, 8)), 8u);
  disk_.faults.Heal();
  EXPECT_EQ(disk_.Good(Range(0, 8)), 8u);
}

// What RocksDB says of its log is final until it is opened anew; all else goes on.
TEST_F(SsdFaultsTest, ACatalogThatCannotBeSyncedStopsTheWritingAlone) {
  disk_.Open();
  disk_.Write(Range(0, 5), kLarge);
  disk_.Write(Range(10, 5), kSmall);
  disk_.catalog_faults.FailSyncs(rocksdb::IOStatus::IOError("broken"));
  disk_.Write({20}, kLarge);
  EXPECT_FALSE(disk_.Has(20));
  EXPECT_THAT(LastError(), HasSubstr("broken"));
  EXPECT_EQ(disk_.Good(Range(0, 15)), 10u);
  disk_.catalog_faults.FailSyncs(rocksdb::IOStatus::OK());
  disk_.Reopen();
  EXPECT_GE(disk_.Good(Range(0, 21)), 10u);
  disk_.Write({30}, kLarge);
  EXPECT_EQ(disk_.Good({30}), 1u);
}

// ------------------------------------------------------------ reclaim on such a disk

TEST_F(SsdFaultsTest, WhatIsWantedSurvivesADiskThatDoesNotWrite) {
  disk_.Open();
  const std::vector<uint64_t> wanted = Range(0, 30);
  for (uint64_t id : wanted) disk_.owner->Keep(TestHash(id));
  disk_.Write(wanted, kLarge);
  uint64_t id = 100;
  for (int round = 0; round < 12; ++round) {
    disk_.faults.Fail(Kind::kWrite, EIO, 1 + round * 3);
    for (int i = 0; i < 12; ++i, id += 8) disk_.Write(Range(id, 8), kLarge);
    disk_.faults.Heal();
    LetPausePass();
    for (int i = 0; i < 4; ++i, id += 8) disk_.Write(Range(id, 8), kLarge);
    ASSERT_EQ(disk_.Good(wanted), wanted.size()) << round;
  }
  EXPECT_TRUE(disk_.owner->lost().empty());
  EXPECT_GT(disk_.owner->moved(), 0u);
  EXPECT_GT(disk_.faults.failed(Kind::kWrite), 5u);
  disk_.Reopen();
  EXPECT_EQ(disk_.Good(wanted), wanted.size());
}

TEST_F(SsdFaultsTest, WhatIsWantedSurvivesAStopWhileItIsMoved) {
  const std::vector<uint64_t> wanted = Range(0, 30);
  disk_.Open();
  for (uint64_t each : wanted) disk_.owner->Keep(TestHash(each));
  disk_.Write(wanted, kLarge);
  uint64_t id = 100;
  for (int round = 0; round < 10; ++round) {
    disk_.faults.Hold(Kind::kRead);
    std::thread writer([&] {
      for (int i = 0; i < 60; ++i, id += 8) disk_.Write(Range(id, 8), kLarge);
    });
    // Its records are being read for the move.
    ASSERT_TRUE(Until([&] { return disk_.faults.held(Kind::kRead) != 0; })) << round;
    disk_->StopWriting();
    disk_.faults.Release(Kind::kRead);
    writer.join();
    disk_.start = false;
    disk_.Reopen();
    ASSERT_EQ(disk_.Good(wanted), wanted.size()) << round;
    for (uint64_t each : wanted) disk_.owner->Keep(TestHash(each));
    disk_->Start();
  }
}

}  // namespace
}  // namespace quarry::server
