#include "common/match_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "tests/unit/common/test_seed.h"

namespace quarry {
namespace {

using ::testing::IsEmpty;

struct Group {
  GroupSpec spec;
  uint64_t first_block = 0;
  std::vector<uint8_t> present;
};

std::vector<GroupPresence> PresenceOf(const std::vector<Group>& groups) {
  std::vector<GroupPresence> presence;
  for (const Group& group : groups) presence.push_back({&group.spec, group.first_block, group.present});
  return presence;
}

Usable UsableOf(uint64_t local_tokens, const std::vector<Group>& groups) {
  return UsablePrefix(local_tokens, PresenceOf(groups));
}

// The longest that takes at most so many blocks.
Usable WithinBlocks(uint64_t max_blocks, uint64_t local_tokens, const std::vector<Group>& groups) {
  return LongestUsable(local_tokens, PresenceOf(groups),
                       [&](const Usable& usable) { return BlockCount(usable) <= max_blocks; });
}

GroupSpec Full(uint32_t tokens) { return {.kind = GroupKind::kFull, .tokens_per_block = tokens}; }
GroupSpec Window(uint32_t tokens, uint32_t window) {
  return {.kind = GroupKind::kWindow, .tokens_per_block = tokens, .window_tokens = window};
}
GroupSpec State(uint32_t tokens) { return {.kind = GroupKind::kState, .tokens_per_block = tokens}; }

// The header's words, token by token.
bool IsThere(const Group& group, uint64_t block) {
  return block >= group.first_block && block < group.first_block + group.present.size() &&
         group.present[block - group.first_block] == 1;
}

std::vector<uint64_t> BlocksNeeded(const Group& group, uint64_t local, uint64_t end) {
  const uint64_t tokens = group.spec.tokens_per_block;
  if (group.spec.kind == GroupKind::kState) return {end / tokens - 1};
  std::vector<uint64_t> blocks;
  for (uint64_t token = local; token < end; ++token) {
    const bool in_window = token + group.spec.window_tokens >= end;
    if (group.spec.kind == GroupKind::kWindow && !in_window) continue;
    if (blocks.empty() || blocks.back() != token / tokens) blocks.push_back(token / tokens);
  }
  return blocks;
}

bool IsLegal(const std::vector<Group>& groups, uint64_t local, uint64_t end) {
  for (const Group& group : groups) {
    if (end % group.spec.tokens_per_block != 0) return false;
    for (const uint64_t block : BlocksNeeded(group, local, end)) {
      if (!IsThere(group, block)) return false;
    }
  }
  return true;
}

uint64_t OracleEnd(uint64_t local, const std::vector<Group>& groups) {
  uint64_t end = 0;
  for (const Group& group : groups) {
    end = std::max(end, (group.first_block + group.present.size()) * group.spec.tokens_per_block);
  }
  while (end > local && !IsLegal(groups, local, end)) --end;
  return end > local && !groups.empty() ? end : local;
}

std::string Describe(uint64_t local, const std::vector<Group>& groups) {
  std::ostringstream out;
  out << "local " << local;
  for (const Group& group : groups) {
    out << "; kind " << int(group.spec.kind) << " tokens " << group.spec.tokens_per_block << " window "
        << group.spec.window_tokens << " from " << group.first_block << " ";
    for (const uint8_t present : group.present) out << int(present);
  }
  return out.str();
}

Group RandomGroup(TestRandom* random, uint64_t local, double density) {
  constexpr uint32_t kTokens[] = {1, 2, 3, 4, 6, 8, 12, 16};
  Group group;
  group.spec.tokens_per_block = kTokens[random->Between(0, 7)];
  group.spec.kind = static_cast<GroupKind>(random->Between(1, 3));
  if (group.spec.kind == GroupKind::kWindow) group.spec.window_tokens = random->Between(1, 40);
  // Mostly where the local hit ends; sometimes earlier or later.
  group.first_block = local / group.spec.tokens_per_block;
  if (random->Chance(0.2)) group.first_block = random->Between(0, group.first_block + 2);
  const uint64_t blocks = random->Between(0, 96 / group.spec.tokens_per_block + 2);
  for (uint64_t i = 0; i < blocks; ++i) group.present.push_back(random->Chance(density) ? 1 : 0);
  return group;
}

TEST(UsablePrefix, EqualsTheBruteForceOracle) {
  TestRandom random;
  int useful = 0;
  for (int i = 0; i < 20000; ++i) {
    const uint64_t local = random.Chance(0.4) ? 0 : random.Between(0, 50);
    const double density = random.Chance(0.3) ? 1.0 : 0.5 + 0.05 * static_cast<double>(random.Between(0, 9));
    std::vector<Group> groups;
    for (uint64_t n = random.Between(0, 4); n > 0; --n) groups.push_back(RandomGroup(&random, local, density));
    const Usable usable = UsableOf(local, groups);
    ASSERT_EQ(usable.end_tokens, OracleEnd(local, groups)) << Describe(local, groups);
    ASSERT_EQ(usable.blocks.size(), groups.size());
    const bool nothing = usable.end_tokens == local;
    useful += nothing ? 0 : 1;
    for (size_t g = 0; g < groups.size(); ++g) {
      std::vector<uint64_t> blocks;
      for (uint64_t b = usable.blocks[g].first; b < usable.blocks[g].end; ++b) blocks.push_back(b);
      const auto expected = nothing ? std::vector<uint64_t>() : BlocksNeeded(groups[g], local, usable.end_tokens);
      ASSERT_EQ(blocks, expected) << Describe(local, groups);
    }
  }
  EXPECT_GT(useful, 2000);  // else the cases say little
}

TEST(UsablePrefix, OfFullAttentionIsAnUnbrokenRun) {
  EXPECT_EQ(UsableOf(0, {{Full(16), 0, {1, 1, 0, 1}}}), (Usable{32, {{0, 2}}}));
  EXPECT_EQ(UsableOf(0, {{Full(16), 0, {0, 1, 1, 1}}}), (Usable{0, {{0, 0}}}));
  EXPECT_EQ(UsableOf(0, {{Full(16), 0, {1, 1}}}), (Usable{32, {{0, 2}}}));
}

TEST(UsablePrefix, StartsAtTheLocalHit) {
  EXPECT_EQ(UsableOf(64, {{Full(16), 4, {1, 1}}}), (Usable{96, {{4, 6}}}));
  // Half of block 4 is the client's own; all of it is needed to go on.
  EXPECT_EQ(UsableOf(72, {{Full(16), 4, {1, 1}}}), (Usable{96, {{4, 6}}}));
  EXPECT_EQ(UsableOf(72, {{Full(16), 4, {0, 1}}}), (Usable{72, {{0, 0}}}));
  EXPECT_EQ(UsableOf(72, {{Full(16), 5, {1, 1}}}), (Usable{72, {{0, 0}}}));
}

TEST(UsablePrefix, OfAWindowNeedsOnlyItsLastBlocks) {
  EXPECT_EQ(UsableOf(0, {{Window(16, 32), 0, {0, 0, 1, 1, 0}}}), (Usable{64, {{2, 4}}}));
  // 33 tokens reach one token into a third block.
  EXPECT_EQ(UsableOf(0, {{Window(16, 33), 0, {0, 0, 1, 1, 0}}}), (Usable{0, {{0, 0}}}));
  EXPECT_EQ(UsableOf(0, {{Window(16, 33), 0, {0, 1, 1, 1, 0}}}), (Usable{64, {{1, 4}}}));
  // A window longer than the prompt needs what a full group does.
  EXPECT_EQ(UsableOf(0, {{Window(16, 4096), 0, {1, 1, 0, 1}}}), (Usable{32, {{0, 2}}}));
}

TEST(UsablePrefix, OfAStateNeedsTheBlockThatEndsThere) {
  EXPECT_EQ(UsableOf(0, {{State(16), 0, {0, 0, 1, 0}}}), (Usable{48, {{2, 3}}}));
  EXPECT_EQ(UsableOf(48, {{State(16), 0, {0, 0, 1, 0}}}), (Usable{48, {{0, 0}}}));
}

TEST(UsablePrefix, IsLegalForEveryGroup) {
  // Full reaches 96, the state is there at 64 and 128, the window allows 64 and 96.
  const std::vector<Group> groups = {
      {Full(16), 0, {1, 1, 1, 1, 1, 1, 0, 1}}, {State(64), 0, {1, 1}}, {Window(32, 32), 0, {0, 1, 1}}};
  EXPECT_EQ(UsableOf(0, groups), (Usable{64, {{0, 4}, {0, 1}, {1, 2}}}));
}

TEST(UsablePrefix, WithoutGroupsIsNothing) {
  const Usable usable = UsableOf(7, {});
  EXPECT_EQ(usable.end_tokens, 7u);
  EXPECT_THAT(usable.blocks, IsEmpty());
}

TEST(UsablePrefix, SurvivesIndicesAtTheEndOfTheNumbers) {
  constexpr uint64_t kHuge = UINT64_MAX;
  EXPECT_EQ(UsableOf(0, {{Full(1u << 20), kHuge, {1, 1}}}).end_tokens, 0u);
  EXPECT_EQ(UsableOf(kHuge, {{State(16), kHuge - 1, {1, 1, 1}}}).end_tokens, kHuge);
  EXPECT_EQ(UsableOf(kHuge - 64, {{Full(16), (kHuge - 64) / 16, {1, 1}}}).end_tokens, kHuge - 47);
}

TEST(UsablePrefix, LooksAtEachBlockOnce) {
  // A long full group against a state that is never there: quadratic work would take minutes.
  constexpr size_t kBlocks = 1 << 20;
  const std::vector<Group> groups = {{Window(1, kBlocks), 0, std::vector<uint8_t>(kBlocks, 1)},
                                     {State(1), 0, std::vector<uint8_t>(kBlocks, 0)}};
  EXPECT_EQ(UsableOf(0, groups).end_tokens, 0u);
}

uint64_t OracleBlocks(const std::vector<Group>& groups, uint64_t local, uint64_t end) {
  uint64_t blocks = 0;
  for (const Group& group : groups) blocks += BlocksNeeded(group, local, end).size();
  return blocks;
}

TEST(LongestUsable, EqualsTheBruteForceOracle) {
  TestRandom random;
  int shortened = 0;
  for (int i = 0; i < 20000; ++i) {
    const uint64_t local = random.Chance(0.4) ? 0 : random.Between(0, 50);
    std::vector<Group> groups;
    for (uint64_t n = random.Between(1, 3); n > 0; --n) groups.push_back(RandomGroup(&random, local, 0.95));
    const uint64_t max_blocks = random.Between(0, 40);
    const uint64_t longest = OracleEnd(local, groups);
    uint64_t end = longest;
    while (end > local && !(IsLegal(groups, local, end) && OracleBlocks(groups, local, end) <= max_blocks)) --end;
    const Usable usable = WithinBlocks(max_blocks, local, groups);
    ASSERT_EQ(usable.end_tokens, end) << "at most " << max_blocks << "; " << Describe(local, groups);
    ASSERT_EQ(BlockCount(usable), end == local ? 0 : OracleBlocks(groups, local, end)) << Describe(local, groups);
    shortened += end > local && end < longest ? 1 : 0;
  }
  EXPECT_GT(shortened, 1000);  // else the cases say little
}

TEST(LongestUsable, IsTheUsablePrefixWhereThatFits) {
  const std::vector<Group> groups = {{Full(16), 0, {1, 1, 1, 0}}};
  EXPECT_EQ(WithinBlocks(3, 0, groups), UsableOf(0, groups));
  EXPECT_EQ(WithinBlocks(2, 0, groups), (Usable{32, {{0, 2}}}));
  EXPECT_EQ(WithinBlocks(0, 0, groups), (Usable{0, {{0, 0}}}));
}

TEST(LongestUsable, FitsEvenWhereShorterOnesDoNot) {
  // Nobody who asks for blocks in a window knows that a shorter end takes others.
  const std::vector<Group> groups = {{Window(16, 32), 0, std::vector<uint8_t>(64, 1)}};
  const auto fits = [](const Usable& usable) { return usable.blocks[0].first % 3 == 0; };
  const Usable usable = LongestUsable(0, PresenceOf(groups), fits);
  EXPECT_TRUE(fits(usable)) << usable.end_tokens;
}

TEST(LongestUsable, AsksAboutFewEnds) {
  constexpr size_t kBlocks = 1 << 16;
  const std::vector<Group> groups = {{Full(1 << 20), 0, std::vector<uint8_t>(kBlocks, 1)}};
  int asked = 0;
  const Usable usable = LongestUsable(0, PresenceOf(groups), [&](const Usable& candidate) {
    ++asked;
    return BlockCount(candidate) <= 12345;
  });
  EXPECT_EQ(BlockCount(usable), 12345u);
  EXPECT_LE(asked, 20);
}

}  // namespace
}  // namespace quarry
