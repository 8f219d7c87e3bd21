// A disk as a whole: what is written comes back, now and after the next start, and what
// reclaim makes of five times its size.
#include "server/ssd/ssd_disk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <future>

#include "tests/unit/server/ssd_testing.h"

namespace quarry::server {
namespace {

using ::testing::Optional;
using Outcome = SsdRead::Outcome;

class SsdDiskTest : public ::testing::Test {
 protected:
  DiskHarness disk_;
};

TEST(RealSsdDiskTest, WhatIsWrittenComesBackNowAndAfterTheNextStart) {
  DiskHarness disk(DiskHarness::Beneath::kReal);
  disk.Open();
  const std::vector<uint32_t> sizes = {1, 4095, 4096, 4097, 65'536, 65'537, 1 << 20};
  for (uint64_t i = 0; i < sizes.size(); ++i) disk.Write({i}, sizes[i]);
  for (const bool again : {false, true}) {
    if (again) disk.Reopen();
    for (uint64_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(disk.PlaceOf(i).inlined, sizes[i] <= disk.options.inline_bytes ? 1 : 0) << sizes[i];
      EXPECT_THAT(disk.Read(i), Optional(Outcome::kGood)) << sizes[i];
    }
    EXPECT_EQ(disk.disk().stats().live_records, sizes.size());
    EXPECT_EQ(disk.disk().stats().reader.records, sizes.size());
  }
}

TEST_F(SsdDiskTest, NeighboursAreReadTogether) {
  disk_.Open();
  disk_.Write(Range(0, 16), kLarge);
  std::vector<uint64_t> ids = Range(0, 16);
  std::reverse(ids.begin(), ids.end());
  const uint64_t before = disk_.disk().stats().io.reads.requests;
  EXPECT_THAT(disk_.Read(ids), ::testing::Each(Optional(Outcome::kGood)));
  EXPECT_LE(disk_.disk().stats().io.reads.requests - before, 2u);
}

TEST_F(SsdDiskTest, ChunksComeByThemselvesAndAloneAreLookedAt) {
  constexpr uint32_t kBytes = 5 * kChunkBytes - 1000;
  disk_.Open();
  disk_.Write({1}, kBytes);
  const auto read = [&](ChunkRange chunks) {
    std::promise<Outcome> ended;
    auto begun = disk_.BeginRead(1, [&](Outcome outcome, SlotRef slot, bool) {
      if (outcome == Outcome::kGood) {
        std::vector<std::byte> expected(kBytes);
        FillBytes(1, expected.data(), kBytes);
        const size_t begin = chunks.first * kChunkBytes;
        const size_t end = std::min<size_t>(kBytes, chunks.end * kChunkBytes);
        EXPECT_EQ(std::memcmp(slot.payload() + begin, expected.data() + begin, end - begin), 0);
        EXPECT_EQ(slot.header()->payload_bytes, kBytes);
      }
      slot = SlotRef();
      ended.set_value(outcome);
    });
    begun->chunks = chunks;
    std::vector<SsdRead> reads;
    reads.push_back(*std::move(begun));
    disk_->Read(std::move(reads));
    return ended.get_future().get();
  };
  const uint64_t before = disk_.disk().stats().io.reads.bytes;
  EXPECT_EQ(read({1, 2}), Outcome::kGood);
  EXPECT_EQ(disk_.disk().stats().io.reads.bytes - before, kChunkBytes + kPageBytes);
  EXPECT_EQ(read({0, 1}), Outcome::kGood);
  EXPECT_EQ(read({4, 5}), Outcome::kGood);
  {
    std::fstream file(disk_.FileOf(disk_.PlaceOf(1)), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(disk_.FileOffset(1) + kPageBytes + kChunkBytes + 5));
    file.put('x').put('y');
  }
  EXPECT_EQ(read({1, 2}), Outcome::kCorrupt);
  EXPECT_EQ(read({2, 4}), Outcome::kGood);
  disk_.faults.Fail(fakes::FakeDisk::Kind::kRead, EIO, 2, 1);
  EXPECT_EQ(read({2, 4}), Outcome::kIoError);
}

TEST_F(SsdDiskTest, CountsOnlyWhatIsCommitted) {
  disk_.Open();
  disk_.Send({1}, kLarge);
  EXPECT_FALSE(disk_.Has(1));  // its clock stands still: the group stays open
  disk_->Flush();
  EXPECT_TRUE(disk_.Has(1));
}

TEST_F(SsdDiskTest, AfterTheNextStartAllIsThere) {
  disk_.Open();
  disk_.Write(Range(0, 40), kLarge);
  disk_.Write(Range(100, 40), kSmall);
  const auto before = disk_.owner->places();
  disk_.Reopen();
  EXPECT_EQ(disk_.disk().stats().recovered_records, 80u);
  EXPECT_EQ(disk_.disk().stats().dropped_records, 0u);
  EXPECT_EQ(disk_.owner->held().size(), before.size());
  for (const auto& [hash, held] : disk_.owner->places()) EXPECT_EQ(held.place, before.at(hash).place);
  EXPECT_EQ(disk_.Good(Range(0, 200)), 80u);
}

TEST_F(SsdDiskTest, WritingGoesOnBehindWhatIsThere) {
  disk_.Open();
  disk_.Write({1, 2}, kLarge);
  disk_.Write({3}, kSmall);
  disk_.Reopen();
  disk_.Write({11, 12}, kLarge);
  disk_.Write({13}, kSmall);
  // 3 is in an extent of another kind, which is the newest: so 11 begins an extent of its own.
  disk_.Reopen();
  disk_.Write({21, 22}, kLarge);
  disk_.Reopen();
  disk_.Write({31}, kLarge);
  EXPECT_EQ(disk_.PlaceOf(31).extent, disk_.PlaceOf(22).extent);
  EXPECT_GT(disk_.PlaceOf(31).page, disk_.PlaceOf(22).page);
  disk_.Reopen();
  EXPECT_EQ(disk_.Good({1, 2, 3, 11, 12, 13, 21, 22, 31}), 9u);
}

TEST_F(SsdDiskTest, WhatIsRemovedStaysSo) {
  disk_.Open();
  disk_.Write(Range(0, 10), kLarge);
  disk_.Write(Range(10, 10), kSmall);
  for (uint64_t id = 5; id < 15; ++id) disk_.owner->Remove(TestHash(id));
  disk_.Reopen();
  EXPECT_EQ(disk_.Good(Range(0, 20)), 10u);
  EXPECT_FALSE(disk_.Has(5) || disk_.Has(14));
}

TEST_F(SsdDiskTest, ANamespaceThatIsNotKnownIsGoneForGood) {
  disk_.Open();
  disk_.Write(Range(0, 10), kLarge);
  disk_.ns = disk_.OpenNamespace("other");
  disk_.Write(Range(20, 10), kLarge);
  disk_.unknown = {"other"};
  disk_.Reopen();
  EXPECT_EQ(disk_.disk().stats().dropped_records, 10u);
  EXPECT_EQ(disk_.Good(Range(0, 30)), 10u);
  // It comes again, and gets a number in the catalog: not one under which old blocks lie.
  disk_.Write({40}, kLarge);
  disk_.unknown = {};
  disk_.Reopen();
  EXPECT_EQ(disk_.Good(Range(0, 20)), 10u);
  EXPECT_EQ(disk_.Good(Range(20, 10)), 0u);
  EXPECT_EQ(disk_.Good({40}), 1u);
}

TEST_F(SsdDiskTest, ContentsThatWereFlushedDoNotComeBack) {
  disk_.Open();
  disk_.Write(Range(0, 10), kLarge);
  const auto old_index = static_cast<uint16_t>(disk_.ns->index);
  ASSERT_TRUE(disk_.namespaces.Flush(*disk_.ns).ok());
  disk_->ForgetNamespace(old_index);
  // The process ends before it has let go of each block.
  disk_.Reopen();
  EXPECT_EQ(disk_.Good(Range(0, 10)), 0u);
  disk_.Write({20}, kLarge);
  disk_.Reopen();
  EXPECT_EQ(disk_.Good(Range(0, 10)), 0u);
  EXPECT_EQ(disk_.Good({20}), 1u);
}

TEST_F(SsdDiskTest, WhatTheOwnerHasNoRoomForIsForgotten) {
  disk_.Open();
  disk_.Write(Range(0, 20), kLarge);
  disk_.max_records = 5;
  disk_.Reopen();
  EXPECT_EQ(disk_.Good(Range(0, 20)), 5u);
  EXPECT_EQ(disk_.disk().stats().dropped_records, 15u);
  disk_.max_records = 1000;
  disk_.Reopen();
  EXPECT_EQ(disk_.Good(Range(0, 20)), 5u);
}

TEST_F(SsdDiskTest, WithLessRoomTheNewestStays) {
  disk_.options.max_bytes = 64 * DiskHarness::kMiB;
  disk_.Open();
  disk_.Write(Range(0, 400), kLarge);  // 44 MiB
  disk_.options.max_bytes = 32 * DiskHarness::kMiB;
  disk_.Reopen();
  EXPECT_LE(disk_.BytesOfFiles(), disk_.options.max_bytes);
  EXPECT_FALSE(disk_.Has(0));
  EXPECT_TRUE(disk_.Has(399));
  EXPECT_GT(disk_.Good(Range(0, 400)), 150u);
  disk_.Reopen();
  EXPECT_GT(disk_.Good(Range(0, 400)), 150u);
  EXPECT_TRUE(disk_.Has(399));
}

// ------------------------------------------------------------ reclaim

TEST_F(SsdDiskTest, FiveTimesItsSizeLeavesItsSize) {
  disk_.Open();
  const uint64_t count = 5 * disk_.options.max_bytes / RecordBytes(kLarge);
  for (uint64_t id = 0; id < count; id += 32) {
    disk_.Write(Range(id, 32), kLarge);
    if (id % 128 == 0) disk_.Write(Range(1'000'000 + id, 32), kSmall);
    ASSERT_LE(disk_.BytesOfFiles(), disk_.options.max_bytes);
  }
  ASSERT_TRUE(Until([&] { return disk_.disk().stats().free_extents >= Reclaimer::kSpareExtents; }));
  const SsdDiskStats stats = disk_.disk().stats();
  EXPECT_GT(stats.reclaimed_extents, 30u);
  EXPECT_LE(stats.live_bytes, disk_.options.max_bytes);
  EXPECT_LE(stats.extents * stats.extent_bytes, disk_.options.max_bytes);
  EXPECT_TRUE(disk_.owner->failed().empty());
  // The newest is there, the oldest is not, and the count is right.
  EXPECT_FALSE(disk_.Has(0));
  EXPECT_TRUE(disk_.Has(count - 1));
  EXPECT_EQ(disk_.Good(Range(0, count + 32)) + disk_.Good(Range(1'000'000, count + 32)), stats.live_records);
  EXPECT_GT(stats.live_bytes, disk_.options.max_bytes / 2);
  disk_.Reopen();
  EXPECT_EQ(disk_.disk().stats().live_bytes, stats.live_bytes);
}

TEST_F(SsdDiskTest, WhatIsWantedIsMovedAndStaysReadable) {
  disk_.Open();
  const std::vector<uint64_t> wanted = {0, 7, 31, 1'000'000, 1'000'005};
  for (uint64_t id : wanted) disk_.owner->Keep(TestHash(id));
  disk_.Write(Range(0, 32), kLarge);
  disk_.Write(Range(1'000'000, 16), kSmall);
  const RecordPlace before = disk_.PlaceOf(7);
  const uint64_t count = 3 * disk_.options.max_bytes / RecordBytes(kLarge);
  for (uint64_t id = 32; id < count; id += 32) {
    disk_.Write(Range(id, 32), kLarge);
    ASSERT_EQ(disk_.Good(wanted), wanted.size()) << id;
  }
  EXPECT_FALSE(disk_.Has(1));
  EXPECT_NE(disk_.PlaceOf(7), before);
  EXPECT_GE(disk_.owner->moved(), 3u);
  EXPECT_GE(disk_.disk().stats().log.moved_records, 3u);
  disk_.Reopen();
  EXPECT_EQ(disk_.Good(wanted), wanted.size());
}

TEST_F(SsdDiskTest, WhoReadsHoldsItsExtentBack) {
  disk_.Open();
  disk_.Write({0}, kLarge);
  const uint32_t extent = disk_.PlaceOf(0).extent;
  // The oldest extent is the next to be emptied, and a read of it is under way.
  std::promise<Outcome> end;
  auto read = disk_.BeginRead(0, [&](Outcome outcome, SlotRef slot, bool) {
    EXPECT_TRUE(outcome != Outcome::kGood || HoldsBytes(0, slot.payload(), kLarge));
    slot = SlotRef();
    end.set_value(outcome);
  });
  ASSERT_TRUE(read.has_value());
  const auto generation_of = [&] {
    for (const SsdExtentInfo& info : disk_.disk().extents()) {
      if (info.number == extent) return info.generation;
    }
    return uint64_t{0};
  };
  const uint64_t generation = generation_of();
  std::thread writer([&] {
    for (uint64_t id = 1; id < 400; id += 8) disk_.Write(Range(id, 8), kLarge);
  });
  ASSERT_TRUE(Until([&] { return !disk_.Has(0); }));  // it is being emptied
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(generation_of(), generation);
  std::vector<SsdRead> reads;
  reads.push_back(*std::move(read));
  disk_->Read(std::move(reads));
  EXPECT_EQ(end.get_future().get(), Outcome::kGood);
  writer.join();
  EXPECT_TRUE(Until([&] { return generation_of() != generation; }));
  EXPECT_TRUE(disk_.Has(399));
}

}  // namespace
}  // namespace quarry::server
