#include "server/dram/chain_lru.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/unit/common/test_seed.h"
#include "tests/unit/server/store_testing.h"

namespace quarry::server {
namespace {

class ChainLruTest : public ::testing::Test {
 protected:
  uint32_t Block(uint64_t id) {
    if (blocks_.count(id) != 0) return blocks_[id];
    const std::string hash = TestHash(id);
    const BlockKey key{0, 0, hash};
    const uint32_t block = index_->Insert(index_->Hash(key), key, 1);
    blocks_[id] = block;
    ids_[block] = id;
    return block;
  }
  void Insert(uint64_t id, uint32_t depth, uint64_t parent = 0) {
    policy_.Insert(Block(id), depth, parent == 0 ? kNoBlock : Block(parent));
  }
  void Touch(const std::vector<uint64_t>& ids) {
    std::vector<uint32_t> chain;
    for (uint64_t id : ids) chain.push_back(Block(id));
    policy_.Touch(chain);
  }
  // The id popped; 0: none.
  uint64_t Pop() {
    const uint32_t block = policy_.Pop();
    return block == kNoBlock ? 0 : ids_[block];
  }
  std::vector<uint64_t> PopAll() {
    std::vector<uint64_t> order;
    while (const uint64_t id = Pop()) order.push_back(id);
    return order;
  }

  std::unique_ptr<BlockIndex> index_ = *BlockIndex::Create(1, 200'000);
  ChainLru policy_{index_.get()};
  std::map<uint64_t, uint32_t> blocks_;
  std::map<uint32_t, uint64_t> ids_;
};

using Order = std::vector<uint64_t>;

TEST_F(ChainLruTest, TailOfAChainLeavesBeforeItsRoot) {
  Insert(1, 16);
  Insert(2, 32, 1);
  Insert(3, 48, 2);
  EXPECT_EQ(PopAll(), (Order{3, 2, 1}));
}

TEST_F(ChainLruTest, OldestChainLeavesFirst) {
  Insert(1, 16);
  Insert(2, 32, 1);
  Insert(11, 16);
  Insert(12, 32, 11);
  Touch({1, 2});
  Insert(13, 48, 12);
  EXPECT_EQ(PopAll(), (Order{13, 12, 11, 2, 1}));
}

TEST_F(ChainLruTest, LoneBlocksLeaveFirstInFirstOut) {
  for (uint64_t id = 1; id <= 5; ++id) Insert(id, 16);
  Touch({2});
  EXPECT_EQ(PopAll(), (Order{1, 3, 4, 5, 2}));
}

TEST_F(ChainLruTest, ParentsAreNeverOlderThanTheirChildren) {
  Insert(1, 16);
  for (uint64_t id = 50; id < 60; ++id) Insert(id, 16);
  Insert(2, 32, 1);  // the root was alone and old
  EXPECT_EQ(PopAll(), (Order{50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 2, 1}));
}

TEST_F(ChainLruTest, BlocksPutOutOfOrderStillLeaveByDepth) {
  Insert(1, 16);
  Insert(2, 32, 1);
  Insert(5, 80, 2);
  Insert(4, 64, 2);
  Insert(3, 48, 2);
  EXPECT_EQ(PopAll(), (Order{5, 4, 3, 2, 1}));
}

TEST_F(ChainLruTest, PuttingAgainIsAUse) {
  for (uint64_t id = 1; id <= 3; ++id) Insert(id, static_cast<uint32_t>(16 * id), id - 1);
  Insert(9, 16);
  for (uint64_t id = 1; id <= 3; ++id) Insert(id, static_cast<uint32_t>(16 * id), id - 1);
  EXPECT_EQ(PopAll(), (Order{9, 3, 2, 1}));
}

TEST_F(ChainLruTest, ReturnedBlocksAreBackWhereTheyWere) {
  for (uint64_t id = 1; id <= 3; ++id) Insert(id, static_cast<uint32_t>(16 * id), id - 1);
  Insert(9, 16);
  Insert(10, 16);
  EXPECT_EQ(Pop(), 3u);
  EXPECT_EQ(Pop(), 2u);
  EXPECT_EQ(Pop(), 1u);
  EXPECT_EQ(Pop(), 9u);
  const uint32_t returned[] = {Block(9), Block(1), Block(3), Block(2)};
  policy_.Return(returned);
  EXPECT_EQ(PopAll(), (Order{3, 2, 1, 9, 10}));
}

TEST_F(ChainLruTest, BlockUsedSinceItWasPoppedStays) {
  Insert(1, 16);
  Insert(2, 16);
  EXPECT_EQ(Pop(), 1u);
  Touch({1});
  EXPECT_FALSE(policy_.ForgetPopped(Block(1)));
  const uint32_t returned[] = {Block(1)};
  policy_.Return(returned);
  policy_.Defer(Block(1));
  EXPECT_EQ(PopAll(), (Order{2, 1}));
  EXPECT_TRUE(policy_.ForgetPopped(Block(1)));
}

TEST_F(ChainLruTest, DeferredBlocksAreNewest) {
  Insert(1, 16);
  Insert(2, 16);
  EXPECT_EQ(Pop(), 1u);
  policy_.Defer(Block(1));
  EXPECT_EQ(PopAll(), (Order{2, 1}));
}

TEST_F(ChainLruTest, ForgottenBlocksDoNotCome) {
  for (uint64_t id = 1; id <= 4; ++id) Insert(id, static_cast<uint32_t>(16 * id), id - 1);
  policy_.Forget(Block(3));
  EXPECT_EQ(policy_.size(), 3u);
  EXPECT_EQ(PopAll(), (Order{4, 2, 1}));
  EXPECT_EQ(policy_.size(), 0u);
}

TEST_F(ChainLruTest, RecordsStayBoundedHoweverOftenBlocksAreUsed) {
  TestRandom random;
  constexpr uint64_t kBlocks = 20'000;
  for (uint64_t id = 1; id <= kBlocks; ++id) Insert(id, static_cast<uint32_t>(id % 100), id % 100 == 1 ? 0 : id - 1);
  uint64_t most = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::vector<uint64_t> ids;
    for (uint64_t n = random.Between(1, 60); n > 0; --n) ids.push_back(random.Between(1, kBlocks));
    Touch(ids);
    most = std::max(most, policy_.records());
  }
  EXPECT_LE(most, 8 * kBlocks);
  EXPECT_EQ(policy_.size(), kBlocks);
  EXPECT_LE(policy_.memory_bytes(), 64 * kBlocks);
  const Order order = PopAll();
  EXPECT_EQ(std::set<uint64_t>(order.begin(), order.end()).size(), kBlocks);
  EXPECT_EQ(order.size(), kBlocks);
  EXPECT_EQ(policy_.records(), 0u);
}

// The order as chain_lru.h words it, spelt out.
class Model {
 public:
  void Touch(const std::vector<uint64_t>& ids) {
    ++stamp_;
    for (uint64_t id : ids) Stamp(id, stamp_, ids.size() == 1);
  }
  void Insert(uint64_t id, uint32_t depth, uint64_t parent) {
    if (blocks_.count(id) == 0) blocks_[id].depth = depth;
    if (blocks_.count(parent) == 0) {
      Stamp(id, ++stamp_, true);
    } else if (blocks_[parent].lone) {
      ++stamp_;
      Stamp(parent, stamp_, false);
      Stamp(id, stamp_, false);
    } else if (blocks_[id].stamp < blocks_[parent].stamp) {
      Stamp(id, blocks_[parent].stamp, false);
    }
  }
  uint64_t Pop() {
    const auto next = std::min_element(blocks_.begin(), blocks_.end(), [](const auto& a, const auto& b) {
      if (a.second.stamp != b.second.stamp) return a.second.stamp < b.second.stamp;
      if (a.second.depth != b.second.depth) return a.second.depth > b.second.depth;
      return a.second.order > b.second.order;
    });
    if (next == blocks_.end()) return 0;
    const uint64_t id = next->first;
    blocks_.erase(next);
    return id;
  }
  bool Has(uint64_t id) const { return blocks_.count(id) != 0; }

 private:
  struct State {
    uint64_t stamp = 0;
    uint32_t depth = 0;
    uint64_t order = 0;
    bool lone = false;
  };
  void Stamp(uint64_t id, uint64_t stamp, bool lone) {
    State& state = blocks_[id];
    state.stamp = stamp;
    state.order = ++order_;
    state.lone = lone;
  }
  std::map<uint64_t, State> blocks_;
  uint64_t stamp_ = 0;
  uint64_t order_ = 0;
};

TEST_F(ChainLruTest, OrderIsTheDocumentedOne) {
  TestRandom random;
  Model model;
  // Chains of a tree: block id has parent id / 3 and its depth.
  const auto depth_of = [](uint64_t id) {
    uint32_t depth = 1;
    for (; id > 2; id /= 3) ++depth;
    return depth;
  };
  for (int step = 0; step < 20'000; ++step) {
    const uint64_t leaf = random.Between(1, 2000);
    std::vector<uint64_t> chain;
    for (uint64_t id = leaf; id > 0; id /= 3) chain.insert(chain.begin(), id);
    if (random.Chance(0.5)) {
      const auto missing = std::find_if(chain.begin(), chain.end(), [&](uint64_t id) { return !model.Has(id); });
      const std::vector<uint64_t> present(chain.begin(), missing);
      if (!present.empty()) {
        model.Touch(present);
        Touch(present);
      }
    } else if (random.Chance(0.6)) {
      for (size_t i = 0; i < chain.size(); ++i) {
        const uint64_t parent = i == 0 ? 0 : chain[i - 1];
        model.Insert(chain[i], depth_of(chain[i]), parent);
        Insert(chain[i], depth_of(chain[i]), parent);
      }
    } else {
      for (uint64_t n = random.Between(0, 8); n > 0; --n) {
        const uint64_t expected = model.Pop();
        const uint64_t popped = Pop();
        ASSERT_EQ(popped, expected) << "step " << step;
        if (popped != 0) {
          ASSERT_TRUE(policy_.ForgetPopped(Block(popped)));
        }
      }
    }
  }
}

}  // namespace
}  // namespace quarry::server
