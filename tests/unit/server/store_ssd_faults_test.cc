// Blocks of a store whose SSD is slow, fails, or loses what it had: misses with their cause, and
// the blocks can be put again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <fstream>
#include <future>

#include "absl/strings/str_cat.h"
#include "tests/fakes/fake_disk.h"
#include "tests/fakes/fake_power.h"
#include "tests/unit/server/ssd_testing.h"

namespace quarry::server {
namespace {

class StoreSsdFaultsTest : public ::testing::Test {
 protected:
  using Kind = IoRequest::Kind;

  static constexpr uint32_t kBytes = 16 << 10;
  static constexpr uint64_t kInMemory = 256;  // blocks that the arena holds
  static constexpr uint64_t kMiB = 1 << 20;

  void SetUp() override { Open(); }
  void TearDown() override {
    faults_.Release(Kind::kWrite);
    harness_.reset();
  }

  void Open() {
    BlockStoreOptions options = StoreHarness::Small(kInMemory * kBytes);
    options.max_ssd_records = 100'000;
    harness_ = std::make_unique<StoreHarness>(options);
    SsdTierOptions ssd;
    ssd.max_records = options.max_ssd_records;
    SsdDiskOptions& disk = ssd.disks.emplace_back();
    disk.dir = dir_.path();
    disk.max_bytes = 32 * kMiB;
    disk.extent_bytes = 4 * kMiB;
    disk.group_bytes = kInMemory * kBytes / 16;
    disk.catalog_memory_bytes = 8 * kMiB;
    faults_.Attach(dir_.path(), &disk);
    const absl::Status opened = harness_->store->OpenSsd(ssd, &harness_->namespaces);
    ASSERT_TRUE(opened.ok()) << opened;
    ns_ = &harness_->Open(TestSpec(kBytes));
  }
  BlockStore& store() { return *harness_->store; }
  StoreStats stats() { return harness_->store->stats(); }
  SsdDiskStats DiskStats() { return harness_->store->ssd()->stats().front(); }

  PutOutcome Put(uint64_t id) {
    OfferResult offer = harness_->Offer(*ns_, id, kBytes);
    if (!offer.ticket) return offer.outcome;
    FillSlot(offer.ticket.slot(), *ns_, TestHash(id), id, kBytes);
    offer.ticket.Publish();
    return PutOutcome::kStored;
  }
  // No faster than the disk takes them.
  void PutAll(uint64_t first, uint64_t count) {
    for (uint64_t id = first; id < first + count; ++id) {
      ASSERT_EQ(Put(id), PutOutcome::kStored) << id;
      if (id % 8 != 0) continue;
      ASSERT_TRUE(Until([&] { return HasRoom(); })) << id << ": " << Figures();
    }
  }
  bool HasRoom() {
    Age();
    const StoreStats now = stats();
    return now.arena_bytes - now.used_bytes + now.ready_bytes >= 8 * kBytes;
  }
  std::string Figures() {
    const StoreStats now = stats();
    const SsdDiskStats ssd = DiskStats();
    return absl::StrCat("used ", now.used_bytes, ", ready ", now.ready_bytes, ", spilling ", now.spilling_bytes,
                        ", leased ", now.leased_bytes, "; free extents ", ssd.free_extents, ", live ", ssd.live_bytes,
                        ", reclaimed ", ssd.reclaimed_extents, ", written ", ssd.log.spilled_records, ", moved ",
                        ssd.log.moved_records, ", writes under way ", ssd.io.in_flight, ", last error ",
                        ssd.log.last_error);
  }
  // Groups are committed when they are old enough; the clock is the test's.
  void Age() { harness_->clock.AdvanceMs(30); }
  void LetPausePass() { harness_->clock.AdvanceMs(RecordLog::kPauseNs / kNsPerMs + 1); }

  bool OnSsdAlone(uint64_t id) {
    return static_cast<BlockState>(harness_->Match(*ns_, {id}, 0, false).chains[0].states[0]) == BlockState::kSsd;
  }
  std::vector<uint64_t> AllOnSsdAlone(uint64_t first, uint64_t count) {
    std::vector<uint64_t> ids;
    for (uint64_t id = first; id < first + count; ++id) {
      if (OnSsdAlone(id)) ids.push_back(id);
    }
    return ids;
  }
  // kNone: it came, and its bytes are right.
  MissCause Load(uint64_t id) {
    const std::string hash = TestHash(id);
    auto end = std::make_shared<std::promise<MissCause>>();
    store().Load(*ns_, 0, 0, HashSpan(hash, 32), [end, id](size_t, const ReadResult& result) {
      EXPECT_TRUE(!result.slot || HoldsBytes(id, result.slot.payload(), kBytes)) << id;
      end->set_value(result.slot ? MissCause::kNone : result.miss);
    });
    std::future<MissCause> cause = end->get_future();
    const bool ended = Until([&] {
      store().Tick();
      Age();
      return cause.wait_for(std::chrono::milliseconds(0)) == std::future_status::ready;
    });
    EXPECT_TRUE(ended) << id << ": " << Figures();
    return ended ? cause.get() : MissCause::kInFlight;
  }
  // Lookups say so from now on, and then it is put again.
  void IsGoneAndComesBack(uint64_t id, MissCause cause) {
    EXPECT_EQ(harness_->Match(*ns_, {id}).first_miss, cause);
    EXPECT_EQ(Load(id), cause);
    EXPECT_EQ(Put(id), PutOutcome::kStored);
    EXPECT_EQ(Load(id), MissCause::kNone);
  }

  const TempDir dir_;
  fakes::FakePower power_;
  fakes::FakeDisk faults_{&power_};
  std::unique_ptr<StoreHarness> harness_;
  const Namespace* ns_ = nullptr;
};

TEST_F(StoreSsdFaultsTest, AReadThatFailsMakesTheNextLookupAMiss) {
  PutAll(0, 2 * kInMemory);
  const std::vector<uint64_t> ids = AllOnSsdAlone(0, 2 * kInMemory);
  ASSERT_GT(ids.size(), 20u);
  faults_.Fail(Kind::kRead, EIO, 1, 1);
  EXPECT_EQ(Load(ids[0]), MissCause::kNodeLost);
  IsGoneAndComesBack(ids[0], MissCause::kNodeLost);
  EXPECT_EQ(Load(ids[1]), MissCause::kNone);
  EXPECT_EQ(stats().failed_loads, 1u);
}

TEST_F(StoreSsdFaultsTest, BytesThatChangedAreSaidToBeCorrupt) {
  PutAll(0, 2 * kInMemory);
  const std::vector<uint64_t> ids = AllOnSsdAlone(0, 2 * kInMemory);
  ASSERT_GT(ids.size(), 20u);
  for (const auto& file : std::filesystem::directory_iterator(dir_.path() + "/extents")) {
    std::fstream extent(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    for (uint64_t at = 0; at < file.file_size(); at += RecordBytes(kBytes)) {
      extent.seekp(static_cast<std::streamoff>(at + 5000));
      extent.write("changed", 7);
    }
  }
  EXPECT_EQ(Load(ids[0]), MissCause::kCorrupt);
  IsGoneAndComesBack(ids[0], MissCause::kCorrupt);
  EXPECT_GT(stats().corrupt_blocks, 0u);
}

TEST_F(StoreSsdFaultsTest, ADiskSlowerThanTheSpillCostsBlocksAndNoTime) {
  faults_.Hold(Kind::kWrite);
  // Nothing gets to the disk, and yet no put waits or is refused.
  for (uint64_t id = 0; id < 8 * kInMemory; ++id) {
    ASSERT_TRUE(Until([&] {
      Age();
      return Put(id) == PutOutcome::kStored;
    })) << id;
  }
  EXPECT_GT(stats().unspilled_blocks, 4 * kInMemory);
  EXPECT_EQ(DiskStats().log.spilled_records, 0u);
  EXPECT_LE(faults_.held(Kind::kWrite), 64u);
  EXPECT_LE(stats().spilling_bytes, stats().arena_bytes);
  // What was on its way gets there when the disk goes on.
  faults_.Release(Kind::kWrite);
  ASSERT_TRUE(Until([&] {
    Age();
    return DiskStats().log.spilled_records != 0;
  }));
  PutAll(10'000, kInMemory);
  EXPECT_EQ(Put(20'000), PutOutcome::kStored);
  EXPECT_GT(AllOnSsdAlone(10'000, kInMemory).size() + AllOnSsdAlone(0, 8 * kInMemory).size(), 20u);
}

TEST_F(StoreSsdFaultsTest, ADiskThatTakesNothingLeavesACacheInMemory) {
  faults_.Fail(Kind::kWrite, EIO);
  for (uint64_t id = 0; id < 4 * kInMemory; ++id) {
    if (id % 100 == 0) LetPausePass();
    ASSERT_TRUE(Until([&] { return Put(id) == PutOutcome::kStored; })) << id;
  }
  ASSERT_TRUE(Until([&] { return DiskStats().log.errors != 0; }));
  EXPECT_EQ(Load(4 * kInMemory - 1), MissCause::kNone);
  EXPECT_EQ(Load(0), MissCause::kEvicted);
  faults_.Heal();
  LetPausePass();
  PutAll(10'000, 2 * kInMemory);
  EXPECT_GT(AllOnSsdAlone(10'000, 2 * kInMemory).size(), 20u);
}

TEST_F(StoreSsdFaultsTest, FiveTimesItsSizeLeavesItsSizeAndWhatIsLeased) {
  PutAll(0, 2 * kInMemory);
  const std::vector<uint64_t> all = AllOnSsdAlone(0, 2 * kInMemory);
  ASSERT_GT(all.size(), 20u);
  const std::vector<uint64_t> leased(all.begin(), all.begin() + 20);
  std::vector<std::string> leases;
  for (uint64_t id : leased) leases.push_back(harness_->Match(*ns_, {id}, 60'000).lease);
  const uint64_t count = 5 * 32 * kMiB / RecordBytes(kBytes);
  for (uint64_t id = 10'000; id < 10'000 + count; id += 64) {
    PutAll(id, 64);
    for (const std::string& lease : leases) EXPECT_TRUE(store().RenewLease("t", lease, 60'000).ok());
  }
  EXPECT_LE(DiskStats().live_bytes, 32 * kMiB);
  EXPECT_GT(DiskStats().reclaimed_extents, 20u);
  for (uint64_t id : leased) EXPECT_EQ(Load(id), MissCause::kNone) << id;
  EXPECT_EQ(Load(all.back()), MissCause::kEvicted);
  size_t hits = 0;
  for (uint64_t id = 10'000; id < 10'000 + count; ++id) hits += Load(id) == MissCause::kNone ? 1 : 0;
  EXPECT_GT(hits * RecordBytes(kBytes), 20 * kMiB);
}

TEST_F(StoreSsdFaultsTest, ExtentsWaitForTheSweepOfAFlushedNamespace) {
  PutAll(0, 7 * kInMemory);  // most of the SSD
  const Namespace& other = harness_->Open(TestSpec(kBytes), "other");
  const auto old_index = harness_->namespaces.Flush(*ns_);
  ASSERT_TRUE(old_index.ok());
  store().Clear(*old_index);
  ns_ = &other;
  // Nothing is swept without a Tick; what is written meanwhile must not lie over what the index
  // still has.
  for (uint64_t id = 10'000; id < 10'000 + 8 * kInMemory; ++id) {
    ASSERT_TRUE(Until([&] {
      Age();
      return Put(id) == PutOutcome::kStored;
    })) << id
        << ": " << Figures();
    // The disk gets its time, but cannot take all.
    for (int i = 0; id % 8 == 0 && i < 10 && !HasRoom(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const auto check_extents = [&] {
    const std::vector<std::vector<SsdExtentInfo>> extents = store().ssd()->extents();
    for (const SsdExtentInfo& extent : extents.front()) EXPECT_LE(extent.live_bytes, extent.bytes) << extent.number;
  };
  check_extents();
  ASSERT_TRUE(Until([&] {
    store().Tick();
    Age();
    return store().stats().blocks == store().use(other).blocks;
  }));
  check_extents();
  PutAll(20'000, 4 * kInMemory);
  check_extents();
  EXPECT_GT(AllOnSsdAlone(20'000, 4 * kInMemory).size(), kInMemory);
}

}  // namespace
}  // namespace quarry::server
