// Many threads and clients that put, match, get, fetch and cancel at random on an arena
// that is too small for them: every byte is right or its absence has a cause, and at the
// end nothing is left of it all.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <list>
#include <string>
#include <thread>

#include "tests/integration/peer.h"
#include "tests/integration/private_server.h"
#include "tests/unit/common/test_seed.h"

namespace quarry::testing {
namespace {

constexpr size_t kShard = 100'000;
constexpr size_t kSlot = 102'400;
constexpr size_t kChainBlocks = 12;
// Three times what the arena of 64 MiB holds.
constexpr uint64_t kChains = 3 * (64 << 20) / kSlot / kChainBlocks;
constexpr size_t kClients = 3;
constexpr size_t kThreadsPerClient = 3;
constexpr int kRounds = kSanitized ? 60 : 400;
constexpr uint32_t kLeaseMs = 2'000;

struct Counts {
  std::atomic<uint64_t> right{0};
  std::atomic<uint64_t> missed{0};
  std::atomic<uint64_t> stored{0};
  std::atomic<uint64_t> cancelled{0};
};

// One thread's part.
class Worker {
 public:
  Worker(const Peer& peer, uint64_t seed, Counts* counts)
      : peer_(peer), random_(seed), counts_(*counts), batch_(peer, 0, kChainBlocks) {}

  void Round() {
    // Early chains are asked for more often.
    const uint64_t chain = std::min(random_.Between(0, kChains - 1), random_.Between(0, kChains - 1));
    batch_.MoveTo(chain * kChainBlocks);
    switch (random_.Between(0, 9)) {
      case 0:
      case 1:
      case 2:
        return Put();
      case 3:
        return Fetch();
      case 4:
      case 5:
        return MatchAndGet();
      case 6:
        return CancelAGet();
      case 7:
        return CancelAPut();
      default:
        return Get({.window_bytes = random_.Chance(0.5) ? kShard : 0});
    }
  }

 private:
  // Each item: its bytes, or a cause that can be.
  void Check(const TransferResult& result) {
    for (size_t i = 0; i < kChainBlocks; ++i) {
      const ItemResult& item = result.items[i];
      if (!item.status.ok()) {
        ASSERT_TRUE(absl::IsCancelled(item.status) || absl::IsOutOfRange(item.status)) << item.status;
        continue;
      }
      if (item.miss == MissCause::kNone) {
        ASSERT_TRUE(batch_.Holds(i)) << "wrong bytes";
        ++counts_.right;
      } else {
        ASSERT_TRUE(item.miss == MissCause::kNeverStored || item.miss == MissCause::kEvicted ||
                    item.miss == MissCause::kInFlight || item.miss == MissCause::kRefused)
            << Name(item.miss);
        ASSERT_TRUE(batch_.buffers().Untouched(i));
        ++counts_.missed;
      }
    }
    ASSERT_TRUE(batch_.buffers().GapsIntact());
  }

  void Get(const GetOptions& options) {
    const auto got = batch_.Get(options);
    ASSERT_TRUE(got.ok()) << got.status();
    Check(*got);
  }

  void Put() {
    batch_.Fill();
    const auto put = peer_->Put(peer_.ns(), ChainItems(), {.wait_in_flight = random_.Chance(0.5)});
    ASSERT_TRUE(put.ok()) << put.status();
    for (const ItemResult& item : put->items) {
      ASSERT_TRUE(item.status.ok()) << item.status;
      if (item.outcome == PutOutcome::kStored) ++counts_.stored;
      if (item.outcome == PutOutcome::kRefused) {
        ASSERT_TRUE(item.refusal == RefusalReason::kInFlight || item.refusal == RefusalReason::kNoSpace)
            << Name(item.refusal);
      }
    }
  }

  // What a match leases is there until the lease ends.
  void MatchAndGet() {
    const auto match = batch_.Match(kLeaseMs);
    ASSERT_TRUE(match.ok()) << match.status();
    const size_t usable = match->usable_tokens / 16;
    if (usable == 0) return;
    ASSERT_TRUE(match->lease);
    const auto got = batch_.Get({.lease = match->lease});
    if (absl::IsNotFound(got.status())) return;  // it took too long to get here
    ASSERT_TRUE(got.ok()) << got.status();
    Check(*got);
    for (size_t i = 0; i < usable; ++i) ASSERT_EQ(got->items[i].miss, MissCause::kNone) << i;
    if (random_.Chance(0.7)) peer_->ReleaseLease(match->lease).IgnoreError();  // may have ended
  }

  void Fetch() {
    batch_.buffers().Clear();
    const Chain chain = batch_.AsChain();
    const auto fetched = peer_->FetchPrefix(peer_.ns(), {&chain, 1}, {batch_.Destinations()},
                                            {.match = {.lease_ms = 0}, .max_blocks = random_.Between(0, kChainBlocks)});
    ASSERT_TRUE(fetched.ok()) << fetched.status();
    Check(fetched->transfer);
  }

  void CancelAGet() {
    batch_.buffers().Clear();
    const auto get = peer_->GetAsync(peer_.ns(), batch_.Items(), {.wait_in_flight = true}, &queue_, 0);
    ASSERT_TRUE(get.ok()) << get.status();
    peer_->Cancel(*get);
    const Ended ended = WaitForEnd(&queue_);
    if (absl::IsCancelled(ended.done.status)) {
      ++counts_.cancelled;
      // Whatever has come of those that had not ended may be in their buffers.
      for (size_t i = 0; i < kChainBlocks; ++i) {
        const ItemResult& item = ended.done.transfer->items[i];
        if (item.status.ok() && item.miss == MissCause::kNone) {
          ASSERT_TRUE(batch_.Holds(i));
        }
      }
      ASSERT_TRUE(batch_.buffers().GapsIntact());
    } else {
      ASSERT_TRUE(ended.done.status.ok()) << ended.done.status;
      Check(*ended.done.transfer);
    }
  }

  void CancelAPut() {
    batch_.Fill();
    const auto put = peer_->PutAsync(peer_.ns(), ChainItems(), {}, &queue_, 0);
    ASSERT_TRUE(put.ok()) << put.status();
    for (uint64_t spin = random_.Between(0, 100'000); spin > 0; --spin) {
      std::atomic_signal_fence(std::memory_order_seq_cst);
    }
    peer_->Cancel(*put);
    const Ended ended = WaitForEnd(&queue_);
    ASSERT_TRUE(ended.done.status.ok() || absl::IsCancelled(ended.done.status)) << ended.done.status;
    if (!ended.done.status.ok()) ++counts_.cancelled;
    // The source is no longer read: garbage in it reaches no block.
    batch_.buffers().Clear();
  }

  std::vector<Item> ChainItems() const {
    std::vector<Item> items = batch_.Items();
    for (size_t i = 0; i < items.size(); ++i) {
      items[i].depth = i;
      if (i > 0) items[i].parent = items[i - 1].hash;
    }
    return items;
  }

  const Peer& peer_;
  TestRandom random_;
  Counts& counts_;
  Batch batch_;
  CompletionQueue queue_;
};

TEST(ClientStressTest, EveryByteIsRightOrItsAbsenceHasACauseAndNothingIsLeft) {
  PrivateServer server("128MiB");
  const uint64_t seed = TestSeed();
  Counts counts;
  std::list<Peer> peers;
  std::list<std::thread> threads;
  for (size_t c = 0; c < kClients; ++c) {
    ClientOptions options;
    options.io_threads = 1 + static_cast<uint32_t>(c);
    options.data_streams = 1 + static_cast<uint32_t>(c);
    peers.emplace_back(server.address(), PlainSpec(kShard), options);
  }
  size_t number = 0;
  for (const Peer& peer : peers) {
    for (size_t t = 0; t < kThreadsPerClient; ++t) {
      threads.emplace_back([&peer, &counts, seed = seed + ++number] {
        Worker worker(peer, seed, &counts);
        for (int round = 0; round < kRounds && !::testing::Test::HasFatalFailure(); ++round) worker.Round();
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  std::printf("%llu right, %llu missed, %llu stored, %llu cancelled\n", static_cast<unsigned long long>(counts.right),
              static_cast<unsigned long long>(counts.missed), static_cast<unsigned long long>(counts.stored),
              static_cast<unsigned long long>(counts.cancelled));
  EXPECT_GT(counts.right, 0u);
  EXPECT_GT(counts.missed, 0u);
  EXPECT_GT(counts.cancelled, 0u);
  for (const Peer& peer : peers) {
    EXPECT_TRUE(peer.IsIdle());
    EXPECT_EQ(peer->counters().checksum_failures, 0u);
    EXPECT_EQ(peer->counters().reconnects, 0u);
  }
  peers.clear();
  EXPECT_TRUE(server.BecomesIdle(0));
  // Whatever slots are in use are those of stored blocks, one each.
  const PrivateServer::Metrics metrics = server.Scrape();
  EXPECT_EQ(metrics.at(kUsedBytes), metrics.at("quarry_blocks") * kSlot);
  EXPECT_EQ(metrics.at("quarry_blocks"), metrics.at("quarry_complete_blocks"));
  EXPECT_GT(metrics.at("quarry_evicted_blocks_total{reason=\"space\",tier=\"dram\"}"), 0);
  EXPECT_EQ(metrics.at("quarry_corrupt_items_total"), 0);
  EXPECT_EQ(server.Stop(), 0);
}

}  // namespace
}  // namespace quarry::testing
