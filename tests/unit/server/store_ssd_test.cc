// The block store with an SSD tier, on a real disk: what goes there, what comes back, and what
// does not.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/fakes/fake_disk.h"
#include "tests/integration/temporary_dir.h"
#include "tests/unit/server/ssd_testing.h"
#include "tests/unit/server/store_testing.h"

namespace quarry::server {
namespace {

constexpr uint64_t kPayload = 64 << 10;
constexpr uint64_t kArena = 16 << 20;  // 256 blocks
constexpr uint64_t kArenaBlocks = kArena / kPayload;

class StoreSsdTest : public ::testing::Test {
 protected:
  void Open(uint64_t budget_bytes_per_day = 0, uint64_t burst_bytes = 0) {
    BlockStoreOptions options = StoreHarness::Small(kArena);
    options.max_ssd_records = 1 << 16;
    options.max_leased_share = max_leased_share_;
    harness_ = std::make_unique<StoreHarness>(options);
    SsdTierOptions ssd;
    ssd.max_records = options.max_ssd_records;
    for (const size_t d : use_) {
      SsdDiskOptions& disk = ssd.disks.emplace_back();
      disk.dir = dirs_[d].path();
      disk.max_bytes = 256 << 20;
      disk.group_bytes = 1 << 20;
      faults_[d].Attach(disk.dir, &disk);
    }
    ssd.write_budget_bytes_per_day = budget_bytes_per_day;
    ssd.write_burst_bytes = burst_bytes;
    const absl::Status status = harness_->store->OpenSsd(ssd, &harness_->namespaces);
    ASSERT_TRUE(status.ok()) << status;
    ns_ = &harness_->Open(TestSpec(kPayload, shards_));
  }
  BlockStore& store() { return *harness_->store; }

  // No faster than the SSD takes them.
  void Put(uint64_t id, bool no_ssd = false) {
    for (uint32_t shard = 0; shard < shards_; ++shard) {
      const std::string hash = TestHash(id);
      PutOffer offer;
      offer.shard = shard;
      offer.hash = hash;
      offer.bytes = kPayload;
      offer.no_ssd = no_ssd;
      OfferResult result = store().Offer(*ns_, offer);
      ASSERT_TRUE(result.ticket) << static_cast<int>(result.outcome);
      FillSlot(result.ticket.slot(), *ns_, hash, id * 16 + shard, kPayload, 0, shard);
      result.ticket.Publish();
    }
    if (id % 8 == 7 || shards_ > 1) Settle();
  }
  // Time goes on for what waits for it, until the spill has nothing to do.
  void Settle() {
    ASSERT_TRUE(Until([&] {
      harness_->clock.AdvanceMs(5);
      store().Tick();
      const StoreStats stats = store().stats();
      // A 32nd is for what comes from the SSD, and the last put may have begun on it.
      const uint64_t free = stats.arena_bytes - stats.used_bytes + kPayload * shards_;
      return free + stats.ready_bytes >= stats.arena_bytes / 32 + stats.arena_bytes / 16 &&
             (hangs_ || stats.spilling_bytes == 0);
    }));
  }
  BlockState StateOf(uint64_t id) { return store().Lookup(*ns_, 0, HashSpan(TestHash(id), 32))[0].state; }
  ReadResult Load(uint64_t id, uint32_t shard = 0) {
    std::mutex mutex;
    std::condition_variable loaded;
    ReadResult result;
    bool done = false;
    store().Load(*ns_, 0, shard, HashSpan(TestHash(id), 32), [&](size_t, ReadResult read) {
      std::lock_guard<std::mutex> lock(mutex);
      result = std::move(read);
      done = true;
      loaded.notify_one();
    });
    std::unique_lock<std::mutex> lock(mutex);
    while (!done) {
      loaded.wait_for(lock, std::chrono::milliseconds(1));
      lock.unlock();
      harness_->clock.AdvanceMs(5);
      store().Tick();
      lock.lock();
    }
    return result;
  }
  bool Comes(uint64_t id, uint32_t shard = 0) {
    const ReadResult read = Load(id, shard);
    return read.slot && HoldsBytes(id * 16 + shard, read.slot.payload(), kPayload);
  }

  // How many of the blocks below `end` are on SSDs alone.
  uint64_t OnSsd(uint64_t end) {
    uint64_t blocks = 0;
    for (uint64_t id = 0; id < end; ++id) blocks += StateOf(id) == BlockState::kSsd ? 1 : 0;
    return blocks;
  }
  void SpillAllAndClose() {
    store().SpillAll();
    ASSERT_TRUE(Until([&] {
      harness_->clock.AdvanceMs(50);
      return store().SpilledAll();
    }));
    harness_.reset();
  }

  std::array<quarry::testing::TemporaryDir, 2> dirs_;
  std::array<fakes::FakeDisk, 2> faults_;
  std::vector<size_t> use_ = {0};  // of dirs_
  bool hangs_ = false;             // what is on its way to a disk stays so
  double max_leased_share_ = BlockStoreOptions().max_leased_share;
  uint32_t shards_ = 1;
  std::unique_ptr<StoreHarness> harness_;
  const Namespace* ns_ = nullptr;
};

TEST_F(StoreSsdTest, ColdBlocksLeaveMemoryAndComeBack) {
  Open();
  for (uint64_t id = 0; id < 2 * kArenaBlocks; ++id) Put(id);
  EXPECT_EQ(store().stats().unspilled_blocks, 0u);
  EXPECT_EQ(StateOf(0), BlockState::kSsd);
  EXPECT_EQ(store().stats().complete_blocks, 2 * kArenaBlocks);
  for (uint64_t id = 0; id < 2 * kArenaBlocks; ++id) EXPECT_TRUE(Comes(id)) << id;
  EXPECT_EQ(StateOf(2 * kArenaBlocks - 1), BlockState::kDram);
}

TEST_F(StoreSsdTest, AllShardsOfABlockGoAndEachComesBackByItself) {
  shards_ = 3;
  Open();
  for (uint64_t id = 0; id < kArenaBlocks; ++id) Put(id);
  ASSERT_EQ(StateOf(0), BlockState::kSsd);
  EXPECT_TRUE(Comes(0, 2));
  EXPECT_EQ(StateOf(0), BlockState::kSsd);  // two are still there only
  EXPECT_TRUE(Comes(0, 0));
  EXPECT_TRUE(Comes(0, 1));
  EXPECT_EQ(StateOf(0), BlockState::kDram);
}

TEST_F(StoreSsdTest, WhatIsNotForSsdsIsEvictedInstead) {
  Open();
  for (uint64_t id = 0; id < 2 * kArenaBlocks; ++id) Put(id, id % 2 == 0);
  EXPECT_EQ(StateOf(0), BlockState::kAbsent);
  EXPECT_EQ(StateOf(1), BlockState::kSsd);
  EXPECT_EQ(store().stats().unspilled_blocks, 0u);
}

TEST_F(StoreSsdTest, WhileTheBudgetIsShortOnlyBlocksThatWereUsedAreWritten) {
  // A burst for a few blocks; a day's bytes come so slowly that none are added meanwhile.
  Open(1 << 20, 16 * kPayload);
  for (uint64_t id = 0; id < 2 * kArenaBlocks; ++id) {
    Put(id);
    if (id % 64 == 0) harness_->Match(*ns_, {id});
  }
  EXPECT_GT(store().stats().over_budget_blocks, kArenaBlocks / 2);
  std::set<uint64_t> written;
  for (uint64_t id = 0; id < kArenaBlocks / 2; ++id) {
    if (StateOf(id) == BlockState::kSsd) written.insert(id);
  }
  // At first all are, until half of the burst is gone.
  EXPECT_LT(written.size(), 24u);
  EXPECT_TRUE(written.contains(64));
  EXPECT_FALSE(written.contains(63));
}

TEST_F(StoreSsdTest, WhatIsLeasedMayLeaveMemoryButNotTheNode) {
  Open();
  constexpr uint64_t kLeased = kArenaBlocks / 2;
  for (uint64_t id = 0; id < kLeased; ++id) Put(id);
  // Each by itself: they need not be a chain.
  std::vector<std::string> leases;
  for (uint64_t id = 0; id < kLeased; ++id) leases.push_back(harness_->Match(*ns_, {id}, 60'000).lease);
  const uint64_t leased_bytes = store().stats().leased_bytes;
  for (uint64_t id = 1000; id < 1000 + 2 * kArenaBlocks; ++id) Put(id);
  EXPECT_EQ(store().stats().unspilled_blocks, 0u);
  for (uint64_t id = 0; id < kLeased; ++id) EXPECT_EQ(StateOf(id), BlockState::kSsd) << id;
  EXPECT_LT(store().stats().leased_bytes, leased_bytes / 4);
  for (uint64_t id = 0; id < kLeased; ++id) EXPECT_TRUE(Comes(id)) << id;
  for (const std::string& lease : leases) EXPECT_TRUE(store().ReleaseLease(ns_->tenant, lease).ok());
  EXPECT_EQ(store().stats().leased_bytes, 0u);
}

// With nowhere to go, what is leased stays.
TEST_F(StoreSsdTest, WhatIsLeasedAndNotForSsdsStaysInMemory) {
  Open();
  constexpr uint64_t kLeased = kArenaBlocks / 4;
  for (uint64_t id = 0; id < kLeased; ++id) Put(id, true);
  std::vector<std::string> leases;
  for (uint64_t id = 0; id < kLeased; ++id) leases.push_back(harness_->Match(*ns_, {id}, 60'000).lease);
  for (uint64_t id = 1000; id < 1000 + 2 * kArenaBlocks; ++id) Put(id);
  for (uint64_t id = 0; id < kLeased; ++id) EXPECT_EQ(StateOf(id), BlockState::kDram) << id;
}

TEST_F(StoreSsdTest, WhenAllElseIsLeasedLoadsStillCome) {
  max_leased_share_ = 1;
  Open();
  for (uint64_t id = 0; id < kArenaBlocks + 64; ++id) Put(id);
  ASSERT_EQ(StateOf(0), BlockState::kSsd);
  // What may not leave memory takes all that it can get, but for the reserve.
  std::vector<std::string> leases;
  uint64_t id = 1000;
  while (true) {
    PutOffer offer;
    const std::string hash = TestHash(id);
    offer.hash = hash;
    offer.bytes = kPayload;
    offer.no_ssd = true;
    OfferResult result = store().Offer(*ns_, offer);
    if (!result.ticket) break;
    FillSlot(result.ticket.slot(), *ns_, hash, id * 16, kPayload);
    result.ticket.Publish();
    const MatchResult leased = harness_->Match(*ns_, {id}, 60'000);
    if (leased.lease.empty()) break;
    leases.push_back(leased.lease);
    ++id;
    ASSERT_LT(id, 1000 + 2 * kArenaBlocks);
  }
  ASSERT_GT(leases.size(), kArenaBlocks / 2);
  for (uint64_t cold = 0; cold < 16; ++cold) EXPECT_TRUE(Comes(cold)) << cold;
  for (uint64_t leased = 1000; leased < id; ++leased) EXPECT_EQ(StateOf(leased), BlockState::kDram) << leased;
}

TEST_F(StoreSsdTest, AfterARestartBlocksAreAsOldAsTheyAre) {
  Open();
  for (uint64_t id = 0; id < kArenaBlocks + 64; ++id) Put(id);
  ASSERT_EQ(StateOf(0), BlockState::kSsd);
  SpillAllAndClose();
  Open();
  EXPECT_EQ(store().stats().complete_blocks, kArenaBlocks + 64);
  EXPECT_EQ(store().stats().ssd_blocks, kArenaBlocks + 64);
  ASSERT_TRUE(harness_->namespaces.SetTtl(*ns_, 60'000).ok());
  EXPECT_TRUE(Comes(3));
  harness_->clock.AdvanceMs(61'000);
  EXPECT_EQ(StateOf(3), BlockState::kAbsent);
  EXPECT_EQ(Load(5).miss, MissCause::kExpired);
}

// ------------------------------------------------------------ several disks

TEST_F(StoreSsdTest, DisksShareWhatIsWritten) {
  use_ = {0, 1};
  Open();
  for (uint64_t id = 0; id < 3 * kArenaBlocks; ++id) Put(id);
  const std::vector<SsdDiskStats> disks = store().ssd()->stats();
  EXPECT_GT(disks[0].live_records, kArenaBlocks / 2);
  EXPECT_GT(disks[1].live_records, kArenaBlocks / 2);
  for (uint64_t id = 0; id < 3 * kArenaBlocks; ++id) EXPECT_TRUE(Comes(id)) << id;
}

TEST_F(StoreSsdTest, ADiskThatHangsDoesNotHoldTheOthersBack) {
  use_ = {0, 1};
  Open();
  faults_[1].Hold(IoRequest::Kind::kWrite);
  hangs_ = true;
  for (uint64_t id = 0; id < 3 * kArenaBlocks; ++id) Put(id);
  const std::vector<SsdDiskStats> disks = store().ssd()->stats();
  EXPECT_GT(disks[0].live_records, kArenaBlocks);
  EXPECT_EQ(disks[1].log.spilled_records, 0u);
  EXPECT_EQ(store().stats().unspilled_blocks, 0u);
  faults_[1].Release(IoRequest::Kind::kWrite);
  faults_[1].Heal();
}

TEST_F(StoreSsdTest, ADiskThatDiesCostsItsShareAndNothingElse) {
  use_ = {0, 1};
  Open();
  constexpr uint64_t kBlocks = 3 * kArenaBlocks;
  for (uint64_t id = 0; id < kBlocks; ++id) Put(id);
  const uint64_t on_dead = store().ssd()->stats()[1].live_records;
  for (const auto kind : {IoRequest::Kind::kRead, IoRequest::Kind::kWrite, IoRequest::Kind::kSync}) {
    faults_[1].Fail(kind, EIO);
  }
  uint64_t lost = 0;
  for (uint64_t id = 0; id < kBlocks; ++id) {
    if (Comes(id)) continue;
    ++lost;
    EXPECT_EQ(StateOf(id), BlockState::kAbsent) << id;
    EXPECT_EQ(harness_->Match(*ns_, {id}).first_miss, MissCause::kNodeLost) << id;
  }
  EXPECT_GT(lost, 0u);
  EXPECT_LE(lost, on_dead);
  // Whatever is put from now on goes to the other. What was on its way to the dead one goes there
  // too; while it does, memory may be wanted sooner.
  lost = 0;
  for (uint64_t id = 5000; id < 5000 + 2 * kArenaBlocks; ++id) Put(id);
  for (uint64_t id = 5000; id < 5000 + 2 * kArenaBlocks; ++id) lost += Comes(id) ? 0 : 1;
  EXPECT_LE(lost, 8u);
}

TEST_F(StoreSsdTest, DisksAreAddedAndTakenAwayBetweenStarts) {
  Open();
  constexpr uint64_t kBlocks = 2 * kArenaBlocks;
  for (uint64_t id = 0; id < kBlocks; ++id) Put(id);
  SpillAllAndClose();
  use_ = {1, 0};  // in another order, too
  Open();
  EXPECT_EQ(OnSsd(kBlocks), kBlocks);
  for (uint64_t id = kBlocks; id < 2 * kBlocks; ++id) Put(id);
  for (uint64_t id = 0; id < kBlocks; id += 16) EXPECT_TRUE(Comes(id)) << id;
  SpillAllAndClose();
  use_ = {1};
  Open();
  const uint64_t left = store().stats().complete_blocks;
  EXPECT_GT(left, 0u);
  EXPECT_LT(left, 2 * kBlocks);
  EXPECT_EQ(OnSsd(2 * kBlocks), left);
  for (uint64_t id = 0; id < 2 * kBlocks; ++id) {
    EXPECT_TRUE(StateOf(id) == BlockState::kAbsent || Comes(id)) << id;
  }
}

}  // namespace
}  // namespace quarry::server
