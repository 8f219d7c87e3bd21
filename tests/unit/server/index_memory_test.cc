// Memory for each block, as the store says and as the process has it. A program of its own,
// so that nothing else is in the figures.
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "tests/unit/server/store_testing.h"

namespace quarry::server {
namespace {

constexpr uint64_t kBlocks = 1'000'000;
constexpr uint64_t kBlockBytes = 4096;
constexpr double kTargetBytes = 160;

uint64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t size = 0;
  uint64_t resident = 0;
  statm >> size >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

void FillAndMeasure(uint64_t chain_blocks) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory would be measured";
#endif
  BlockStoreOptions options;
  options.arena_bytes = kBlocks * kBlockBytes + (64 << 20);
  options.prefault = false;
  StoreHarness h(options);
  const Namespace& ns = h.Open(TestSpec(kBlockBytes));
  malloc_trim(0);
  const uint64_t resident_before = ResidentBytes();
  const uint64_t heap_before = mallinfo2().uordblks;
  // Payloads and headers are not written: those pages do not exist.
  for (uint64_t id = 1; id <= kBlocks; ++id) {
    const uint64_t depth = (id - 1) % chain_blocks;
    OfferResult offer = h.Offer(ns, id, kBlockBytes, depth, depth == 0 ? 0 : id - 1);
    ASSERT_TRUE(offer.ticket) << id;
    offer.ticket.Publish();
  }
  const double resident = static_cast<double>(ResidentBytes() - resident_before) / kBlocks;
  const double heap = static_cast<double>(mallinfo2().uordblks - heap_before) / kBlocks;
  const StoreStats stats = h.store->stats();
  ASSERT_EQ(stats.blocks, kBlocks);
  const double stated = static_cast<double>(stats.index_bytes) / kBlocks;
  std::printf("chains of %llu: bytes a block: index_bytes %.1f, resident %.1f (of it heap %.1f)\n",
              static_cast<unsigned long long>(chain_blocks), stated, resident, heap);
  EXPECT_LE(stated, kTargetBytes);
  EXPECT_LE(resident, kTargetBytes);
  // The ghost filter, 4 MiB, is stated and not yet touched.
  EXPECT_NEAR(stated, resident, 0.15 * resident);
}

class IndexMemoryTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(IndexMemoryTest, BlocksCostAtMost160BytesEach) { FillAndMeasure(GetParam()); }
INSTANTIATE_TEST_SUITE_P(InChainsOf, IndexMemoryTest, ::testing::Values(1, 2, 7, 64, 512),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace quarry::server
