// Power loss at every sync: what was said to be written is there, and all that is believed is
// right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/common/test_seed.h"
#include "tests/unit/server/ssd_testing.h"

namespace quarry::server {
namespace {

using fakes::Loss;
using Work = std::function<void(DiskHarness*)>;

// Extents are begun, filled and gone on with; blocks of both kinds; some are removed.
void WriteAndRemove(DiskHarness* disk) {
  for (uint64_t round = 0; round < 8; ++round) {
    disk->Send(Range(100 * round, 6), kLarge);
    disk->Send(Range(100 * round + 50, 5), kSmall);
    disk->Send({100 * round + 90}, 700'000);
    disk->disk().Flush();
    if (round >= 2) disk->owner->Remove(TestHash(100 * (round - 2)));
    if (round >= 2) disk->owner->Remove(TestHash(100 * (round - 2) + 50));
  }
}

// The disk is full: extents are emptied, some of what is in them is moved, and they are written
// again at once.
void WriteAndReclaim(DiskHarness* disk) {
  // Of the last groups each has several extents.
  for (uint64_t id = 0, count = 20; id < 800; id += count) {
    count = id < 400 ? 20 : 100;
    if (id % 100 == 0) disk->owner->Keep(TestHash(id));
    if (id % 100 == 0) disk->owner->Keep(TestHash(10'000 + id));
    disk->Send(Range(id, count), kLarge);
    disk->Write(Range(10'000 + id, 3), kSmall);
  }
}

class SsdPowerTest : public ::testing::Test {
 protected:
  // How many syncs the work takes.
  static uint64_t CountSyncs(const Work& work) {
    DiskHarness disk;
    disk.Open();
    const uint64_t before = disk.power.syncs();
    work(&disk);
    return disk.power.syncs() - before;
  }

  static void CutAndCheck(const Work& work, uint64_t syncs, uint64_t seed) {
    const auto of_extents = static_cast<Loss>(seed % 3);
    const auto of_catalog = static_cast<Loss>(seed / 3 % 3);
    SCOPED_TRACE("after " + std::to_string(syncs) + " syncs, seed " + std::to_string(seed));
    DiskHarness disk;
    disk.Open();
    disk.power.CutAfter(syncs);
    work(&disk);
    disk.power.Cut();
    disk.Close();
    const std::set<std::string> written = disk.owner->held();
    disk.faults.LoseUnsynced(of_extents, seed);
    disk.catalog_faults.LoseUnsynced(of_catalog, seed);
    disk.power.Restore();
    disk.start = false;  // nothing is emptied before all has been read
    disk.Open();
    EXPECT_THAT(disk.owner->held(), ::testing::IsSupersetOf(written));
    EXPECT_EQ(disk.Good(Range(0, 1000)) + disk.Good(Range(10'000, 1000)), disk.owner->held().size());
    // And it goes on from there.
    disk->Start();
    disk.Write(Range(20'000, 5), kLarge);
    disk.Write(Range(30'000, 5), kSmall);
    disk.Reopen();
    EXPECT_EQ(disk.Good(Range(20'000, 5)) + disk.Good(Range(30'000, 5)), 10u);
    EXPECT_EQ(disk.Good(Range(0, 1000)) + disk.Good(Range(10'000, 1000)) + 10, disk.owner->held().size());
  }

  // Of every `step` syncs one.
  static void CutEverywhere(const Work& work, uint64_t step) {
    const uint64_t seed = TestSeed();
    const uint64_t syncs = CountSyncs(work);
    ASSERT_GT(syncs, 20u);
    for (uint64_t cut = seed % step; cut <= syncs && !HasFailure(); cut += step) {
      CutAndCheck(work, cut, seed + cut / step);
    }
  }
};

TEST_F(SsdPowerTest, WhatWasWrittenIsThereAndNothingElse) { CutEverywhere(WriteAndRemove, 1); }

TEST_F(SsdPowerTest, AlsoWhileExtentsAreEmptiedAndWrittenAgain) { CutEverywhere(WriteAndReclaim, 3); }

}  // namespace
}  // namespace quarry::server
