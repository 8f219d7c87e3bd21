// Which extents there are, which is written next, which is emptied next.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "server/ssd/extent_set.h"
#include "tests/unit/server/catalog_testing.h"

namespace quarry::server {
namespace {

constexpr uint64_t kBytes = 1 << 20;

class ExtentSetTest : public ::testing::Test {
 protected:
  ExtentSetTest() { Make(4); }
  void Make(uint64_t extents) {
    auto files = OpenExtentFiles(dir_.path() + "/extents");
    ASSERT_TRUE(files.ok()) << files.status();
    set_ = std::make_unique<ExtentSet>(*std::move(files), extents * kBytes, kBytes);
  }
  Extent* Take(bool inlined = false, uint32_t spare = 0) {
    const absl::StatusOr<Extent*> taken = set_->Take(inlined, spare, 1);
    EXPECT_TRUE(taken.ok()) << taken.status();
    return taken.ok() ? *taken : nullptr;
  }
  size_t Files() const {
    size_t files = 0;
    for (const auto& file : std::filesystem::directory_iterator(dir_.path() + "/extents")) {
      files += file.file_size() != 0 ? 1 : 0;
    }
    return files;
  }

  const TempDir dir_;
  std::unique_ptr<ExtentSet> set_;
};

TEST_F(ExtentSetTest, GivesAsManyAsThereIsRoomForAndKeepsSomeBack) {
  EXPECT_EQ(set_->free(), 4u);
  for (int i = 0; i < 3; ++i) ASSERT_NE(Take(false, 1), nullptr);
  EXPECT_EQ(Take(false, 1), nullptr);
  EXPECT_EQ(set_->free(), 1u);
  Extent* last = Take();
  ASSERT_NE(last, nullptr);
  EXPECT_EQ(Take(), nullptr);
  EXPECT_EQ(Files(), 4u);
  EXPECT_EQ(set_->Find(last->number), last);
  EXPECT_EQ(set_->Find(99), nullptr);
}

TEST_F(ExtentSetTest, WhatIsUsedAnewHasANewGeneration) {
  Extent* first = Take();
  const uint64_t generation = first->generation;
  first->end = 4096;
  set_->Seal(first);
  set_->Release(first);
  Extent* again = Take();
  EXPECT_EQ(again, first);
  EXPECT_GT(again->generation, generation);
  EXPECT_EQ(again->end, 0u);
}

TEST_F(ExtentSetTest, TheOldestIsEmptiedUnlessAnotherIsNearlyEmpty) {
  std::vector<Extent*> taken;
  for (int i = 0; i < 4; ++i) {
    taken.push_back(Take());
    taken[i]->live_bytes = kBytes / 2;
  }
  EXPECT_EQ(set_->TakeVictim(), nullptr);  // all are written to
  for (Extent* extent : taken) set_->Seal(extent);
  taken[2]->live_bytes = kBytes / 8 - 1;
  EXPECT_EQ(set_->TakeVictim(), taken[2]);
  EXPECT_EQ(set_->TakeVictim(), taken[0]);
  set_->Seal(taken[0]);
  EXPECT_EQ(set_->TakeVictim(), taken[0]);
}

TEST_F(ExtentSetTest, OneThatIsBadGoesWithItsFile) {
  Extent* bad = Take();
  const uint32_t number = bad->number;
  bad->bad = true;
  set_->Seal(bad);
  set_->Release(bad);
  EXPECT_EQ(set_->Find(number), nullptr);
  EXPECT_EQ(Files(), 0u);
  EXPECT_EQ(set_->free(), 4u);
}

TEST_F(ExtentSetTest, KindsGiveEachOtherTheirRoom) {
  for (int i = 0; i < 4; ++i) {
    Extent* extent = Take(true);
    EXPECT_TRUE(extent->inlined);
    set_->Seal(extent);
  }
  EXPECT_EQ(Files(), 0u);
  EXPECT_EQ(Take(false), nullptr);
  set_->Release(set_->TakeVictim());
  Extent* file = Take(false);
  ASSERT_NE(file, nullptr);
  EXPECT_FALSE(file->inlined);
  EXPECT_EQ(Files(), 1u);
  set_->Seal(file);
  set_->Release(file);
  EXPECT_TRUE(Take(true)->inlined);
  EXPECT_EQ(Files(), 0u);
}

TEST_F(ExtentSetTest, WhatIsRestoredIsGoneOnWithIfItIsTheNewest) {
  const uint32_t first = Take()->number;
  const uint32_t second = Take()->number;
  Make(4);
  ASSERT_TRUE(set_->Restore(first, 10, kBytes).ok());
  const auto newest = set_->Restore(second, 11, kBytes);
  ASSERT_TRUE(newest.ok());
  (*newest)->end = 8192;
  EXPECT_EQ(set_->TakeRestored(true), nullptr);
  EXPECT_EQ(set_->TakeRestored(false), *newest);
  EXPECT_EQ((*newest)->end, 8192u);
  EXPECT_GT(Take()->generation, 11u);
}

TEST_F(ExtentSetTest, ANewestThatIsFullIsNotGoneOnWith) {
  const uint32_t number = Take()->number;
  Make(4);
  (*set_->Restore(number, 10, kBytes))->end = kBytes;
  EXPECT_EQ(set_->TakeRestored(false), nullptr);
}

TEST_F(ExtentSetTest, NumbersBeyondItsRoomAndMissingFilesAreRefused) {
  EXPECT_TRUE(absl::IsOutOfRange(set_->Restore(1 << 22, 1, kBytes).status()));
  EXPECT_FALSE(set_->Restore(7, 1, kBytes).ok());
  EXPECT_EQ(set_->Find(7), nullptr);
}

TEST_F(ExtentSetTest, AfterItHasShrunkExtentsGoUntilItFits) {
  std::vector<uint32_t> numbers;
  for (int i = 0; i < 4; ++i) numbers.push_back(Take()->number);
  Make(2);
  for (uint32_t number : numbers) ASSERT_TRUE(set_->Restore(number, number, kBytes).ok());
  EXPECT_EQ(Take(), nullptr);
  set_->Release(set_->TakeVictim());
  set_->Release(set_->TakeVictim());
  EXPECT_EQ(Files(), 2u);
  set_->Release(set_->TakeVictim());
  EXPECT_EQ(Files(), 2u);
  EXPECT_EQ(set_->free(), 1u);
}

TEST_F(ExtentSetTest, FilesThatNobodyHasAreRemovedAndOthersLeftAlone) {
  const uint32_t kept = Take()->number;
  Take();
  std::ofstream(dir_.path() + "/extents/notes.txt") << "not ours";
  Make(4);
  ASSERT_TRUE(set_->Restore(kept, 1, kBytes).ok());
  ASSERT_TRUE(set_->RemoveStrays().ok());
  EXPECT_EQ(Files(), 2u);
  EXPECT_TRUE(std::filesystem::exists(dir_.path() + "/extents/notes.txt"));
}

}  // namespace
}  // namespace quarry::server
