#include "server/dram/reuse_distance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <list>
#include <random>
#include <thread>
#include <unordered_map>

#include "tests/unit/common/test_seed.h"

namespace quarry::server {
namespace {

using Hashes = std::vector<uint64_t>;

// As good as BlockIndex::Hash for numbers (the finaliser of MurmurHash3).
uint64_t HashOf(uint64_t id, uint64_t seed = 0) {
  uint64_t x = (id + seed) * 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCD;
  x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53;
  return x ^ (x >> 33);
}

// Asks for the blocks, as a match does.
void Use(ReuseDistance* reuse, const Hashes& hashes) {
  Hashes followed;
  for (const uint64_t hash : hashes) {
    if (reuse->Follows(hash)) followed.push_back(hash);
  }
  reuse->Use(followed, hashes.size());
}

double HitRatio(const ReuseDistance& reuse, uint64_t capacity_bytes) {
  return 1 - reuse.MissesAt(capacity_bytes) / static_cast<double>(reuse.uses());
}

// An LRU cache as one would write it, to compare with.
class ExactLru {
 public:
  explicit ExactLru(uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  void Use(const Hashes& hashes) {
    uses_ += hashes.size();
    for (const uint64_t hash : hashes) hits_ += places_.count(hash);
    for (auto hash = hashes.rbegin(); hash != hashes.rend(); ++hash) {
      const auto it = places_.find(*hash);
      if (it != places_.end()) order_.splice(order_.begin(), order_, it->second);
    }
  }
  void Store(uint64_t hash, uint64_t bytes) {
    const auto it = places_.find(hash);
    if (it != places_.end()) return order_.splice(order_.begin(), order_, it->second);
    order_.push_front({hash, bytes});
    places_[hash] = order_.begin();
    bytes_ += bytes;
    while (bytes_ > capacity_bytes_) {
      bytes_ -= order_.back().bytes;
      places_.erase(order_.back().hash);
      order_.pop_back();
    }
  }
  double misses() const { return static_cast<double>(uses_ - hits_); }
  double hit_ratio() const { return static_cast<double>(hits_) / static_cast<double>(uses_); }

 private:
  struct Block {
    uint64_t hash, bytes;
  };
  const uint64_t capacity_bytes_;
  std::list<Block> order_;  // newest first
  std::unordered_map<uint64_t, std::list<Block>::iterator> places_;
  uint64_t bytes_ = 0;
  uint64_t uses_ = 0;
  uint64_t hits_ = 0;
};

// Prompts of which the first blocks are more often the same: block d of a prompt is one of
// 2^d to 20'000. Sizes differ from block to block.
class Workload {
 public:
  explicit Workload(uint64_t seed) : random_(seed), hash_seed_(random_()) {}

  Hashes Prompt() {
    Hashes hashes;
    const size_t blocks = 1 + random_() % 30;
    for (size_t depth = 0; depth < blocks; ++depth) {
      const uint64_t variants = std::min<uint64_t>(20'000, uint64_t{1} << depth);
      // The greater the number, the rarer.
      const auto variant = static_cast<uint64_t>(static_cast<double>(variants) * std::pow(Uniform(), 3));
      hashes.push_back(HashOf(depth * 1'000'000 + variant, hash_seed_));
    }
    return hashes;
  }
  static uint64_t BytesOf(uint64_t hash) { return 4096 * (1 + hash % 16); }

 private:
  double Uniform() { return std::uniform_real_distribution<double>(0, 1)(random_); }

  std::mt19937_64 random_;
  const uint64_t hash_seed_;
};

constexpr uint64_t kMaxCapacity = ReuseDistance::kSteps << 20;
constexpr uint64_t kCapacities[] = {1 << 20, 8 << 20, 64 << 20, 200 << 20, kMaxCapacity};

// Feeds both with the same prompts, each matched and then put. ExactLru of each capacity.
std::vector<ExactLru> Feed(ReuseDistance* reuse, uint64_t seed, int prompts) {
  std::vector<ExactLru> exact(std::begin(kCapacities), std::end(kCapacities));
  Workload workload(seed);
  for (int i = 0; i < prompts; ++i) {
    const Hashes prompt = workload.Prompt();
    Use(reuse, prompt);
    for (const uint64_t hash : prompt) reuse->Store(hash, Workload::BytesOf(hash));
    for (ExactLru& lru : exact) {
      lru.Use(prompt);
      for (const uint64_t hash : prompt) lru.Store(hash, Workload::BytesOf(hash));
    }
  }
  return exact;
}

TEST(ReuseDistanceTest, FollowingEveryBlockItIsExact) {
  const uint64_t seed = TestSeed();
  ReuseDistance reuse({.max_capacity_bytes = kMaxCapacity, .sample_rate = 1, .max_followed = 1 << 20});
  const std::vector<ExactLru> exact = Feed(&reuse, seed, 5'000);
  for (size_t i = 0; i < exact.size(); ++i) {
    EXPECT_EQ(reuse.MissesAt(kCapacities[i]), exact[i].misses()) << kCapacities[i] << ", seed " << seed;
  }
}

// Caches that hold many of the followed blocks: a few of them cannot tell how large a small one is.
TEST(ReuseDistanceTest, ASampleIsWithinThreePercent) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    ReuseDistance reuse({.max_capacity_bytes = kMaxCapacity, .sample_rate = 1.0 / 8, .max_followed = 1024});
    const std::vector<ExactLru> exact = Feed(&reuse, seed, 20'000);
    EXPECT_LE(reuse.followed(), 1024u);
    for (size_t i = 2; i < exact.size(); ++i) {
      EXPECT_NEAR(HitRatio(reuse, kCapacities[i]), exact[i].hit_ratio(), 0.03) << kCapacities[i] << ", seed " << seed;
    }
  }
}

// Whether the one block that every prompt begins with is followed must not decide.
TEST(ReuseDistanceTest, ABlockThatEveryoneSharesDoesNotMatter) {
  for (uint64_t shared = 0; shared < 64; ++shared) {
    ReuseDistance reuse({.max_capacity_bytes = 1 << 30, .sample_rate = 1.0 / 8});
    for (uint64_t i = 0; i < 20'000; ++i) {
      const Hashes prompt = {HashOf(shared), HashOf(1'000'000 * (1 + shared) + i)};
      Use(&reuse, prompt);
      for (const uint64_t hash : prompt) reuse.Store(hash, 4096);
    }
    EXPECT_NEAR(HitRatio(reuse, 1 << 30), 0.5, 0.04) << shared;
  }
}

TEST(ReuseDistanceTest, MemoryIsBoundedUnderMillionsOfBlocks) {
  ReuseDistance reuse({.max_capacity_bytes = uint64_t{1} << 50, .sample_rate = 1});
  for (uint64_t id = 0; id < 2'000'000; ++id) {
    reuse.Store(HashOf(id), 2 << 20);
    Use(&reuse, {HashOf(id * 7 % (id + 1))});
  }
  EXPECT_LE(reuse.followed(), ReuseDistanceOptions().max_followed);
  EXPECT_GT(reuse.followed(), ReuseDistanceOptions().max_followed / 2);
  EXPECT_LE(reuse.memory_bytes(), ReuseDistance::kBytesPerBlock * ReuseDistanceOptions().max_followed);
  EXPECT_LE(reuse.memory_bytes(), 1u << 20);
  EXPECT_EQ(reuse.uses(), 2'000'000u);
  // All are there, and in a cache of that size all hit.
  EXPECT_NEAR(HitRatio(reuse, uint64_t{1} << 50), 1, 0.01);
}

TEST(ReuseDistanceTest, WhatTheLargestCacheWouldHaveEvictedIsNotFollowed) {
  ReuseDistance reuse({.max_capacity_bytes = 100 * 4096, .sample_rate = 1});
  for (uint64_t id = 0; id < 100'000; ++id) reuse.Store(HashOf(id), 4096);
  EXPECT_EQ(reuse.followed(), 100u);
  EXPECT_EQ(reuse.threshold(), UINT64_MAX) << "so there is no need to follow fewer";
}

TEST(ReuseDistanceTest, ABlockThatWasOnlyAskedForIsNotThere) {
  ReuseDistance reuse({.max_capacity_bytes = 1 << 30, .sample_rate = 1});
  Use(&reuse, {HashOf(1)});
  Use(&reuse, {HashOf(1)});
  EXPECT_EQ(reuse.MissesAt(1 << 30), 2);
  reuse.Store(HashOf(1), 4096);
  Use(&reuse, {HashOf(1)});
  EXPECT_EQ(reuse.MissesAt(1 << 30), 2);
  EXPECT_EQ(reuse.uses(), 3u);
}

TEST(ReuseDistanceTest, ATouchMakesABlockTheNewestAndStoresNothing) {
  constexpr uint64_t kStep = 4096;
  ReuseDistance reuse({.max_capacity_bytes = ReuseDistance::kSteps * kStep, .sample_rate = 1});
  for (uint64_t id = 0; id < 10; ++id) reuse.Store(HashOf(id), kStep);
  reuse.Touch(HashOf(0));
  reuse.Touch(HashOf(99));
  EXPECT_EQ(reuse.followed(), 10u);
  EXPECT_EQ(reuse.uses(), 0u);
  Use(&reuse, {HashOf(0)});
  EXPECT_EQ(reuse.MissesAt(kStep), 0);
  Use(&reuse, {HashOf(1)});
  EXPECT_EQ(reuse.MissesAt(9 * kStep), 1);
  EXPECT_EQ(reuse.MissesAt(10 * kStep), 0);
}

// The root is the newest: all of a chain hit in what holds the chain.
TEST(ReuseDistanceTest, AChainIsUsedAsAWhole) {
  constexpr uint64_t kStep = 4096;
  ReuseDistance reuse({.max_capacity_bytes = ReuseDistance::kSteps * kStep, .sample_rate = 1});
  const Hashes chain = {HashOf(0), HashOf(1), HashOf(2), HashOf(3)};
  for (const uint64_t hash : chain) reuse.Store(hash, kStep);
  Use(&reuse, chain);
  const double before[] = {reuse.MissesAt(kStep), reuse.MissesAt(2 * kStep), reuse.MissesAt(3 * kStep)};
  Use(&reuse, {HashOf(0), HashOf(1)});
  EXPECT_EQ(reuse.MissesAt(kStep) - before[0], 1);
  EXPECT_EQ(reuse.MissesAt(2 * kStep) - before[1], 0);
  EXPECT_EQ(reuse.MissesAt(3 * kStep) - before[2], 0);
}

TEST(ReuseDistanceTest, WhatWasRemovedMissesAtEverySize) {
  ReuseDistance reuse({.max_capacity_bytes = 1 << 30, .sample_rate = 1});
  reuse.Store(HashOf(1), 4096);
  reuse.Store(HashOf(2), 4096);
  reuse.Forget(HashOf(1));
  reuse.Forget(HashOf(3));
  Use(&reuse, {HashOf(1), HashOf(2)});
  EXPECT_EQ(reuse.MissesAt(1 << 30), 1);
  EXPECT_EQ(reuse.followed(), 1u);
}

TEST(ReuseDistanceTest, ARateOfZeroFollowsNothing) {
  ReuseDistance reuse({.max_capacity_bytes = 1 << 30, .sample_rate = 0});
  for (uint64_t id = 0; id < 1'000; ++id) reuse.Store(HashOf(id), 4096);
  EXPECT_EQ(reuse.followed(), 0u);
}

TEST(ReuseDistanceTest, ManyThreadsLoseNoUse) {
  constexpr int kThreads = 4;
  constexpr uint64_t kSteps = 20'000;
  const uint64_t seed = TestSeed();
  ReuseDistance reuse({.max_capacity_bytes = 4096 * 3'000, .sample_rate = 1, .max_followed = 512});
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&reuse, seed, t] {
      std::mt19937_64 random(seed + t);
      for (uint64_t i = 0; i < kSteps; ++i) {
        const uint64_t hash = HashOf(random() % 5'000, seed);
        Use(&reuse, {hash, HashOf(random() % 100, seed)});
        reuse.Store(hash, 4096);
        if (i % 16 == 0) reuse.Touch(HashOf(random() % 5'000, seed));
        if (i % 64 == 0) reuse.Forget(HashOf(random() % 5'000, seed));
        if (i % 256 != 0) continue;
        EXPECT_GE(reuse.MissesAt(0), reuse.MissesAt(4096 * 1'000));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(reuse.uses(), 2 * kThreads * kSteps);
  EXPECT_LE(reuse.followed(), 512u);
  const double hits = HitRatio(reuse, 4096 * 3'000);
  EXPECT_GT(hits, 0.5) << "seed " << seed;
  EXPECT_LE(hits, 1.0);
}

}  // namespace
}  // namespace quarry::server
