// A disk whose files are not what they were: misses, never wrong bytes, and what is missing can be
// written again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/unit/server/ssd_testing.h"

namespace quarry::server {
namespace {

using ::testing::Optional;
using Outcome = SsdRead::Outcome;

void FlipBit(const std::filesystem::path& path, uint64_t offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  const auto flipped = static_cast<char>(file.get() ^ 4);
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(flipped);
  ASSERT_TRUE(file.good()) << path;
}

void Zero(const std::filesystem::path& path, uint64_t offset, size_t bytes) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(offset));
  file.write(std::string(bytes, '\0').data(), static_cast<std::streamsize>(bytes));
  ASSERT_TRUE(file.good()) << path;
}

class SsdDamageTest : public ::testing::Test {
 protected:
  // Most of what is on a disk is not looked at before somebody asks for it.
  SsdDamageTest() { disk_.options.check_bytes = 0; }

  // It is not what it was; then it is written anew, and good.
  void LoseAndWriteAgain(uint64_t id, uint32_t bytes) {
    disk_.owner->Lose(TestHash(id));
    disk_.Write({id}, bytes);
    EXPECT_THAT(disk_.Read(id), Optional(Outcome::kGood)) << id;
  }

  DiskHarness disk_;
};

TEST_F(SsdDamageTest, ARecordThatIsNotWholeIsAMiss) {
  disk_.Open();
  disk_.Write(Range(0, 27), kLarge);  // as many pages as a record has
  const RecordPlace first = disk_.PlaceOf(0);
  disk_.Close();
  const uint64_t pages = RecordBytes(kLarge) / kPageBytes;
  ASSERT_LE(pages, 27u);
  // Each has lost another page, and one the half of a page.
  for (uint64_t id = 1; id < pages; ++id) {
    Zero(disk_.FileOf(first), (first.page + id * pages + id) * kPageBytes, id == 5 ? 2048 : kPageBytes);
  }
  disk_.Open();
  EXPECT_THAT(disk_.Read(0), Optional(Outcome::kGood));
  for (uint64_t id = 1; id < pages; ++id) EXPECT_THAT(disk_.Read(id), Optional(Outcome::kCorrupt)) << id;
  EXPECT_EQ(disk_.disk().stats().reader.corrupt, pages - 1);
  for (uint64_t id = 1; id < pages; ++id) LoseAndWriteAgain(id, kLarge);
}

TEST_F(SsdDamageTest, OfTheNewestRecordsTheBadOnesAreForgottenAtTheStart) {
  disk_.Open();
  disk_.Write(Range(0, 60), kLarge);
  disk_.Write(Range(60, 4), kSmall);
  const RecordPlace old = disk_.PlaceOf(0);
  const RecordPlace newer = disk_.PlaceOf(50);
  const RecordPlace newest = disk_.PlaceOf(59);
  ASSERT_NE(old.extent, newest.extent);
  disk_.Close();
  for (const RecordPlace& place : {old, newer, newest}) {
    FlipBit(disk_.FileOf(place), (place.page + 2) * kPageBytes + 100);
  }
  disk_.options.check_bytes = 15 * RecordBytes(kLarge);
  disk_.Open();
  EXPECT_FALSE(disk_.Has(59));
  EXPECT_FALSE(disk_.Has(50));
  EXPECT_EQ(disk_.disk().stats().dropped_records, 2u);
  // Further back nobody has looked.
  EXPECT_TRUE(disk_.Has(0));
  EXPECT_THAT(disk_.Read(0), Optional(Outcome::kCorrupt));
  EXPECT_EQ(disk_.Good(Range(1, 63)), 61u);
  // They stay so, and there is room for them again.
  disk_.Reopen();
  EXPECT_EQ(disk_.disk().stats().dropped_records, 0u);
  disk_.Write({50, 59}, kLarge);
  EXPECT_EQ(disk_.Good({50, 59}), 2u);
}

TEST_F(SsdDamageTest, AFlippedBitIsAMiss) {
  disk_.Open();
  disk_.Write(Range(0, 5), kLarge);
  const RecordPlace place = disk_.PlaceOf(0);
  disk_.Close();
  const uint64_t bytes = RecordBytes(kLarge);
  const uint64_t begin = place.page * kPageBytes;
  FlipBit(disk_.FileOf(place), begin + 0 * bytes + 30);                             // generation
  FlipBit(disk_.FileOf(place), begin + 1 * bytes + 100);                            // hash
  FlipBit(disk_.FileOf(place), begin + 2 * bytes + 208);                            // a chunk's sum
  FlipBit(disk_.FileOf(place), begin + 3 * bytes + RecordHeaderBytes(kLarge) + 9);  // payload
  disk_.Open();
  for (uint64_t id = 0; id < 4; ++id) EXPECT_THAT(disk_.Read(id), Optional(Outcome::kCorrupt)) << id;
  EXPECT_THAT(disk_.Read(4), Optional(Outcome::kGood));
  for (uint64_t id = 0; id < 4; ++id) LoseAndWriteAgain(id, kLarge);
}

TEST_F(SsdDamageTest, BitsThatFlipInTheCatalogCostWhatLiesAboutThem) {
  disk_.Open();
  disk_.Write(Range(0, 2000), kSmall);
  disk_.Write(Range(5000, 20), kLarge);
  disk_.Reopen();  // what was logged is in tables now
  disk_.Close();
  std::filesystem::path largest;  // with the payloads
  for (const auto& file : std::filesystem::directory_iterator(disk_.options.dir + "/catalog")) {
    if (file.path().extension() != ".sst") continue;
    if (largest.empty() || file.file_size() > std::filesystem::file_size(largest)) largest = file.path();
  }
  ASSERT_FALSE(largest.empty());
  FlipBit(largest, std::filesystem::file_size(largest) / 2);
  disk_.Open();
  size_t bad = 0;
  for (uint64_t id = 0; id < 2000; ++id) {
    const auto outcome = disk_.Read(id);
    ASSERT_TRUE(outcome.has_value());
    if (*outcome == Outcome::kGood) continue;
    EXPECT_EQ(*outcome, Outcome::kCorrupt);
    ++bad;
    LoseAndWriteAgain(id, kSmall);
  }
  EXPECT_GT(bad, 0u);
  EXPECT_LT(bad, 100u);
  EXPECT_EQ(disk_.Good(Range(5000, 20)), 20u);
}

TEST_F(SsdDamageTest, AMissingFileCostsWhatWasInIt) {
  disk_.Open();
  disk_.Write(Range(0, 100), kLarge);  // three extents
  disk_.Write(Range(200, 10), kSmall);
  const std::filesystem::path missing = disk_.FileOf(disk_.PlaceOf(0));
  disk_.Close();
  ASSERT_TRUE(std::filesystem::remove(missing));
  disk_.Open();
  EXPECT_FALSE(disk_.Has(0));
  const uint64_t lost = disk_.disk().stats().dropped_records;
  EXPECT_GE(lost, 30u);
  EXPECT_EQ(disk_.Good(Range(0, 100)), 100u - lost);
  EXPECT_EQ(disk_.Good(Range(200, 10)), 10u);
  disk_.Write(Range(0, 100), kLarge);
  EXPECT_EQ(disk_.Good(Range(0, 100)), 100u);
  disk_.Reopen();
  EXPECT_EQ(disk_.Good(Range(0, 100)), 100u);
}

TEST_F(SsdDamageTest, ATruncatedFileCostsWhatWasBehind) {
  disk_.Open();
  disk_.Write(Range(0, 30), kLarge);
  const RecordPlace cut = disk_.PlaceOf(20);
  disk_.Close();
  std::filesystem::resize_file(disk_.FileOf(cut), cut.page * kPageBytes + 5000);
  disk_.Open();
  EXPECT_TRUE(disk_.Has(19));
  EXPECT_FALSE(disk_.Has(20) || disk_.Has(29));
  EXPECT_EQ(disk_.Good(Range(0, 20)), 20u);
  disk_.Write(Range(20, 10), kLarge);
  EXPECT_EQ(disk_.Good(Range(0, 30)), 30u);
  disk_.Close();
  std::filesystem::resize_file(disk_.FileOf(cut), 0);
  disk_.Open();
  EXPECT_FALSE(disk_.Has(0));
  disk_.Write(Range(0, 20), kLarge);
  EXPECT_EQ(disk_.Good(Range(0, 30)), 30u);
}

TEST_F(SsdDamageTest, FilesThatChangedPlacesAreNotBelieved) {
  disk_.Open();
  disk_.Write(Range(0, 60), kLarge);
  const std::filesystem::path one = disk_.FileOf(disk_.PlaceOf(0));
  const std::filesystem::path other = disk_.FileOf(disk_.PlaceOf(59));
  ASSERT_NE(one, other);
  disk_.Close();
  std::filesystem::rename(one, one.string() + ".aside");
  std::filesystem::rename(other, one);
  std::filesystem::rename(one.string() + ".aside", other);
  disk_.Open();
  EXPECT_THAT(disk_.Read(Range(0, 60)), ::testing::Each(Optional(Outcome::kCorrupt)));
  for (uint64_t id = 0; id < 60; ++id) disk_.owner->Lose(TestHash(id));
  disk_.Write(Range(0, 60), kLarge);
  EXPECT_EQ(disk_.Good(Range(0, 60)), 60u);
}

// As when the catalog has been rolled back, or the extent: the right block at the right place,
// but of another time, when other bytes had its name.
TEST_F(SsdDamageTest, AFileOfAnEarlierTimeIsNotBelieved) {
  const std::vector<uint64_t> blocks = Range(0, disk_.options.extent_bytes / RecordBytes(kLarge));  // an extent
  disk_.Open();
  disk_.Write(blocks, kLarge);
  const RecordPlace place = disk_.PlaceOf(0);
  const std::filesystem::path kept = disk_.FileOf(place).string() + ".kept";
  std::filesystem::copy_file(disk_.FileOf(place), kept);
  // Until it is written anew, with the same blocks at the same places.
  for (int round = 0; round < 100; ++round) {
    for (uint64_t id : blocks) disk_.owner->Remove(TestHash(id));
    disk_.Write(blocks, kLarge);
    if (disk_.PlaceOf(0) == place) break;
  }
  ASSERT_EQ(disk_.PlaceOf(0), place);
  disk_.Close();
  std::filesystem::rename(kept, disk_.FileOf(place));
  disk_.Open();
  EXPECT_THAT(disk_.Read(0), Optional(Outcome::kCorrupt));
}

TEST_F(SsdDamageTest, WhatCannotBeReadIsLostWhenItIsToBeMoved) {
  disk_.Open();
  disk_.Write(Range(0, 30), kLarge);
  for (uint64_t id = 0; id < 30; ++id) disk_.owner->Keep(TestHash(id));
  FlipBit(disk_.FileOf(disk_.PlaceOf(7)), disk_.FileOffset(7) + 50'000);
  for (uint64_t id = 100; id < 700; id += 8) disk_.Write(Range(id, 8), kLarge);
  EXPECT_THAT(disk_.owner->lost(), ::testing::ElementsAre(TestHash(7)));
  EXPECT_EQ(disk_.Good(Range(0, 30)), 29u);
}

}  // namespace
}  // namespace quarry::server
