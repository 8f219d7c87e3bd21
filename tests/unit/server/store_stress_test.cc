// Many threads on a tiny arena: whatever is read belongs to its key, and in the end every
// count is back where it began.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/unit/common/test_seed.h"
#include "tests/unit/server/store_testing.h"

namespace quarry::server {
namespace {

constexpr uint64_t kIds = 600;
constexpr uint64_t kSizes[] = {4096, 12'000, 65'536};
constexpr uint32_t kShards = 2;

class Worker {
 public:
  Worker(StoreHarness* h, const std::vector<const Namespace*>* namespaces, uint64_t seed)
      : h_(h), namespaces_(*namespaces), random_(seed) {}

  void Run(int steps) {
    for (int i = 0; i < steps; ++i) Step();
    for (const auto& [tenant, token] : leases_) (void)h_->store->ReleaseLease(tenant, token);
  }
  uint64_t reads = 0;
  uint64_t stored = 0;

 private:
  uint64_t Pick(uint64_t n) { return random_() % n; }
  uint64_t BytesOf(uint64_t id) const { return kSizes[id % 3]; }

  void Step() {
    const Namespace& ns = *namespaces_[Pick(namespaces_.size())];
    const uint64_t id = 1 + Pick(kIds);
    switch (Pick(12)) {
      case 0:
      case 1:
      case 2:
        return PutChain(ns, id, 1 + Pick(8));
      case 3:
      case 4:
        return MatchAndRead(ns, id, 1 + Pick(8), true);
      case 5:
      case 6:
        return MatchAndRead(ns, id, 1 + Pick(8), false);
      case 7:
        return ReadSome(ns, id, 1 + Pick(8));
      case 8:
        if (Pick(10) == 0) h_->store->DropCorrupt(ns, 0, TestHash(id));
        return;
      case 9:
        return h_->store->Touch(ns, 0, HashSpan(TestHashes(Range(id, 4)), 32));
      case 10:
        if (h_->store->WaitForPut(ns, 0, 0, TestHash(id), [this] { ++*woken_; })) ++waited_;
        return;
      case 11:
        h_->clock.AdvanceMs(1);
        h_->store->Tick();
        EndSomeLease();
        return;
    }
  }

  void PutChain(const Namespace& ns, uint64_t first, uint64_t count) {
    for (uint64_t id = first; id < first + count; ++id) {
      for (uint32_t shard = 0; shard < kShards; ++shard) {
        OfferResult offer =
            h_->Offer(ns, id, BytesOf(id), id - first, id == first ? 0 : id - 1, shard, 0, Pick(20) == 0 ? 5 : 0);
        if (!offer.ticket) continue;
        if (Pick(10) == 0) continue;  // gives up
        if (Pick(10) == 0) {
          offer.ticket.Refuse(RefusalReason::kCancelled);
          continue;
        }
        FillPayload(offer.ticket.slot(), Stamp(ns, id, shard), BytesOf(id));
        offer.ticket.Publish();
        ++stored;
      }
    }
  }

  void MatchAndRead(const Namespace& ns, uint64_t first, uint64_t count, bool lease) {
    const MatchResult match = h_->Match(ns, Range(first, count), lease ? 50 : 0);
    // What is said to be leased is there, unless someone dropped it as corrupt.
    for (uint64_t b = match.chains[0].usable.first; b < match.chains[0].usable.end; ++b) {
      for (uint32_t shard = 0; shard < kShards; ++shard) {
        const ReadResult read = Check(ns, first + b, shard);
        const bool may_miss = !lease || h_->store->CheckLease(ns, match.lease).code() != absl::StatusCode::kOk;
        if (!read.slot && !may_miss) {
          EXPECT_TRUE(dropped(read.miss)) << Name(read.miss);
        }
      }
    }
    if (!match.lease.empty()) leases_.emplace_back(ns.tenant, match.lease);
  }
  // A dropped block may also be on its way back.
  static bool dropped(MissCause cause) {
    return cause == MissCause::kCorrupt || cause == MissCause::kInFlight || cause == MissCause::kIncomplete ||
           cause == MissCause::kRefused;
  }

  void ReadSome(const Namespace& ns, uint64_t first, uint64_t count) {
    for (uint64_t id = first; id < first + count; ++id) {
      ReadResult read = Check(ns, id, static_cast<uint32_t>(Pick(kShards)));
      if (read.slot && Pick(4) == 0) held_.push_back({std::move(read.slot), last_stamp_});
    }
    while (held_.size() > 4) {
      EXPECT_TRUE(PayloadIs(held_.front().first, held_.front().second));
      held_.erase(held_.begin());
    }
  }

  ReadResult Check(const Namespace& ns, uint64_t id, uint32_t shard) {
    ReadResult read = h_->Read(ns, id, shard);
    last_stamp_ = Stamp(ns, id, shard);
    if (read.slot) {
      EXPECT_TRUE(PayloadIs(read.slot, last_stamp_));
      ++reads;
    } else {
      EXPECT_NE(read.miss, MissCause::kNone);
    }
    return read;
  }

  static uint64_t Stamp(const Namespace& ns, uint64_t id, uint32_t shard) {
    return uint64_t{ns.index} << 48 | uint64_t{shard} << 32 | id;
  }

  void EndSomeLease() {
    if (leases_.empty()) return;
    const size_t i = Pick(leases_.size());
    const auto [tenant, token] = leases_[i];
    if (Pick(2) == 0) (void)h_->store->RenewLease(tenant, token, 20);
    if (Pick(2) == 0) {
      (void)h_->store->ReleaseLease(tenant, token);
      leases_.erase(leases_.begin() + static_cast<ptrdiff_t>(i));
    }
  }

 public:
  std::shared_ptr<std::atomic<uint64_t>> woken_ = std::make_shared<std::atomic<uint64_t>>(0);
  uint64_t waited_ = 0;

 private:
  StoreHarness* const h_;
  const std::vector<const Namespace*>& namespaces_;
  std::mt19937_64 random_;
  std::vector<std::pair<std::string, std::string>> leases_;
  std::vector<std::pair<SlotRef, uint64_t>> held_;
  uint64_t last_stamp_ = 0;
};

TEST(StoreStressTest, EveryByteBelongsToItsKeyAndEveryCountComesBack) {
  const uint64_t seed = TestSeed();
  BlockStoreOptions options = StoreHarness::Small(kArenaBytes);
  options.index_shards = 4;
  options.max_leases = 200;
  StoreHarness h(options);
  const std::vector<const Namespace*> namespaces = {&h.Open(TestSpec(65'536, kShards)),
                                                    &h.Open(TestSpec(65'536, kShards), "n", "other")};
  uint64_t waited = 0;
  uint64_t woken = 0;
  uint64_t reads = 0;
  {
    std::vector<std::unique_ptr<Worker>> workers;
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 6; ++t) workers.push_back(std::make_unique<Worker>(&h, &namespaces, seed + t));
    for (auto& worker : workers) threads.emplace_back([&worker] { worker->Run(6000); });
    for (std::thread& thread : threads) thread.join();
    for (auto& worker : workers) {
      waited += worker->waited_;
      woken += *worker->woken_;
      reads += worker->reads;
    }
  }
  EXPECT_EQ(woken, waited);
  EXPECT_GT(reads, 0u);
  h.clock.AdvanceMs(options.max_lease_ms);
  h.store->Tick();
  StoreStats stats = h.store->stats();
  EXPECT_EQ(stats.leases, 0u);
  EXPECT_EQ(stats.leased_bytes, 0u);
  EXPECT_EQ(stats.in_flight_puts, 0u);
  EXPECT_GT(stats.evicted_blocks, 0u);
  EXPECT_GT(stats.slab_moves, 0u);

  // Nothing is stuck: a flood of one class gets the whole arena.
  for (uint64_t id = 1'000'000; id < 1'000'000 + kArenaBytes / 4096; ++id) h.Put(*namespaces[0], id, 4096);
  for (uint64_t id = 1'000'000; id < 1'000'000 + kArenaBytes / 4096; ++id) {
    ASSERT_TRUE(PayloadIs(h.Read(*namespaces[0], id).slot, id));
    h.store->DropCorrupt(*namespaces[0], 0, TestHash(id));
  }
  stats = h.store->stats();
  EXPECT_EQ(stats.blocks, 0u);
  EXPECT_EQ(stats.complete_blocks, 0u);
  EXPECT_EQ(stats.used_bytes, 0u);
  EXPECT_EQ(stats.payload_bytes, 0u);
  for (const auto& [tenant, bytes] : h.store->tenant_bytes()) EXPECT_EQ(bytes, 0u) << tenant;
}

}  // namespace
}  // namespace quarry::server
