#include "server/dram/slab_arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "common/checksum.h"

namespace quarry::server {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kSlab = 64 * kKiB;

std::unique_ptr<SlabArena> MakeArena(uint64_t slabs, uint64_t slab_bytes = kSlab) {
  auto arena = SlabArena::Create({slabs * slab_bytes, slab_bytes, false});
  EXPECT_TRUE(arena.ok()) << arena.status();
  return *std::move(arena);
}

SlotRef Allocate(SlabArena& arena, uint64_t bytes, uint32_t owner = 0, uint32_t tenant = 0) {
  return arena.Allocate(arena.size_classes().ClassOf(bytes), {owner, tenant, static_cast<uint32_t>(bytes)});
}

TEST(SizeClassesTest, WasteLessThanASixteenthAndPowersOfTwoAreExact) {
  const SizeClasses classes(64 << 20);
  for (uint64_t bytes = 64 * kKiB; bytes <= 64 << 20; bytes += 1000 + bytes / 97) {
    const uint64_t slot = classes.slot_bytes(classes.ClassOf(bytes));
    ASSERT_GE(slot, bytes);
    ASSERT_LT(static_cast<double>(slot - bytes) / static_cast<double>(slot), 0.0625) << bytes;
  }
  for (uint64_t bytes = 4096; bytes <= 64 << 20; bytes *= 2)
    EXPECT_EQ(classes.slot_bytes(classes.ClassOf(bytes)), bytes);
  for (uint64_t bytes = 1; bytes <= 64 * kKiB; bytes += 511) {
    ASSERT_LT(classes.slot_bytes(classes.ClassOf(bytes)) - bytes, kSlotAlignment);
  }
  EXPECT_EQ(classes.ClassOf((64 << 20) + 1), SizeClasses::kNone);
  for (int i = 0; i < classes.count(); ++i) EXPECT_EQ(classes.slot_bytes(i) % kSlotAlignment, 0u);
}

TEST(SlabArenaTest, PowerOfTwoSlotsFillSlabsExactly) {
  auto arena = MakeArena(4);
  std::vector<SlotRef> slots;
  for (int i = 0; i < 4 * 16; ++i) {
    slots.push_back(Allocate(*arena, 4096));
    ASSERT_TRUE(slots.back());
  }
  EXPECT_FALSE(Allocate(*arena, 4096));
  EXPECT_EQ(arena->stats().used_bytes, 4 * kSlab);
}

TEST(SlabArenaTest, SlotsAndHeadersDoNotOverlap) {
  auto arena = MakeArena(8, 1 << 20);
  std::vector<SlotRef> slots;
  const uint64_t sizes[] = {4096, 70'000, 200'000, 1 << 20, 12'288, 65'536};
  for (int round = 0; round < 6; ++round) {
    for (uint64_t bytes : sizes) {
      if (SlotRef slot = Allocate(*arena, bytes)) slots.push_back(slot);
    }
  }
  ASSERT_GT(slots.size(), 10u);
  for (size_t i = 0; i < slots.size(); ++i) {
    std::memset(slots[i].payload(), static_cast<int>(i + 1), slots[i].capacity());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(slots[i].payload()) % kSlotAlignment, 0u);
    slots[i].header()->root = i;
    slots[i].header()->payload_bytes = i;
    for (size_t c = 0; c < ChunkCount(slots[i].capacity()); ++c) slots[i].header()->sums[c] = i;
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    for (size_t b = 0; b < slots[i].capacity(); ++b) ASSERT_EQ(static_cast<uint8_t>(slots[i].payload()[b]), i + 1);
    EXPECT_EQ(slots[i].header()->root, i);
    EXPECT_EQ(slots[i].header()->payload_bytes, i);
    for (size_t c = 0; c < ChunkCount(slots[i].capacity()); ++c) ASSERT_EQ(slots[i].header()->sums[c], i);
  }
}

TEST(SlabArenaTest, LastReferenceReturnsTheSlot) {
  auto arena = MakeArena(1);
  SlotRef slot = Allocate(*arena, kSlab);
  SlotRef copy = slot;
  SlotRef moved = std::move(slot);
  EXPECT_FALSE(slot);  // NOLINT: what a move leaves behind is promised to be empty
  EXPECT_FALSE(Allocate(*arena, kSlab));
  copy = SlotRef();
  EXPECT_FALSE(Allocate(*arena, kSlab));
  moved = SlotRef();
  EXPECT_TRUE(Allocate(*arena, kSlab));
}

TEST(SlabArenaTest, EmptySlabServesAnotherClass) {
  auto arena = MakeArena(1);
  SlotRef first = Allocate(*arena, 4096);
  SlotRef second = Allocate(*arena, 4096);
  EXPECT_FALSE(Allocate(*arena, 8192));
  first = SlotRef();
  EXPECT_FALSE(Allocate(*arena, 8192));
  second = SlotRef();
  EXPECT_TRUE(Allocate(*arena, 8192));
  EXPECT_EQ(arena->stats().slab_moves, 1u);
}

TEST(SlabArenaTest, LeastUsedSlabOfAnotherClassIsPickedToMove) {
  auto arena = MakeArena(3);
  std::vector<SlotRef> full;
  for (int i = 0; i < 32; ++i) full.push_back(Allocate(*arena, 4096, 100 + i));
  for (int i = 16; i < 30; ++i) full[i] = SlotRef();  // the second slab keeps two
  SlotRef other = Allocate(*arena, 8192);
  std::vector<SlabArena::UsedSlot> used;
  const int own_class = arena->size_classes().ClassOf(8192);
  const int64_t slab = arena->PickSlabToMove(own_class, {}, &used);
  ASSERT_GE(slab, 0);
  std::set<uint32_t> owners;
  for (const auto& slot : used) owners.insert(slot.owner);
  EXPECT_EQ(owners, (std::set<uint32_t>{130, 131}));
  const uint32_t tried[] = {static_cast<uint32_t>(slab)};
  EXPECT_NE(arena->PickSlabToMove(own_class, tried, &used), slab);
  EXPECT_EQ(used.size(), 16u);
}

TEST(SlabArenaTest, TenantsAreAccountedWholeSlotsUntilTheLastReference) {
  auto arena = MakeArena(4);
  SlotRef a = Allocate(*arena, 5000, 0, 0);
  SlotRef b = Allocate(*arena, 4096, 0, 2);
  EXPECT_EQ(arena->tenant_bytes(), (std::vector<uint64_t>{8192, 0, 4096}));
  EXPECT_EQ(arena->stats().payload_bytes, 9096u);
  a = SlotRef();
  b = SlotRef();
  EXPECT_EQ(arena->tenant_bytes(), (std::vector<uint64_t>{0, 0, 0}));
  EXPECT_EQ(arena->stats().payload_bytes, 0u);
}

TEST(SlabArenaTest, BadOptionsAreNamed) {
  EXPECT_THAT(std::string(SlabArena::Create({1 << 20, 3 << 16, false}).status().message()), HasSubstr("slab_bytes"));
  EXPECT_THAT(std::string(SlabArena::Create({1 << 20, 1 << 12, false}).status().message()), HasSubstr("slab_bytes"));
  EXPECT_THAT(std::string(SlabArena::Create({1 << 20, 0, false}).status().message()), HasSubstr("arena_bytes"));
}

TEST(SlabArenaTest, ChosenSlabsAreManyAndAtMost64MiB) {
  for (uint64_t arena_bytes : {64ull << 20, 1ull << 30, 4ull << 30, 100ull << 30}) {
    auto arena = SlabArena::Create({arena_bytes, 0, false});
    ASSERT_TRUE(arena.ok());
    EXPECT_GE(arena_bytes / (*arena)->slab_bytes(), 16u);
    EXPECT_GE((*arena)->slab_bytes(), 4u << 20);
    EXPECT_LE((*arena)->slab_bytes(), 64u << 20);
    if (arena_bytes >= 4ull << 30) {
      EXPECT_EQ((*arena)->slab_bytes(), 64u << 20);
    }
  }
}

TEST(SlabArenaTest, PrefaultedArenaIsWritable) {
  auto arena = SlabArena::Create({4 << 20, 0, true});
  ASSERT_TRUE(arena.ok()) << arena.status();
  std::memset((*arena)->memory().data(), 1, (*arena)->memory().size());
}

}  // namespace
}  // namespace quarry::server
