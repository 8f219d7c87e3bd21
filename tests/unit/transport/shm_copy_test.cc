#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/checksum.h"
#include "common/transport/shm/copy_past_cache.h"
#include "tests/unit/transport/memory.h"

namespace quarry::transport::shm {
namespace {

constexpr size_t kSizes[] = {0, 1, 63, 64, 65, 4095, 4096, 4097, 8191, 8192, 8193, 70'000, 200'001};
constexpr size_t kOffsets[] = {0, 1, 63};

// Each into memory that ends where the copy shall end, from memory that does so too.
template <typename Copy>
void CopyAll(const Copy& copy) {
  for (const size_t bytes : kSizes) {
    for (const size_t offset : kOffsets) {
      SCOPED_TRACE(::testing::Message() << bytes << " bytes, " << offset << " from the end of a line");
      const Bytes payload = Payload(bytes + offset, bytes);
      GuardedMemory from(bytes + offset);
      GuardedMemory to(bytes + 1);
      std::memcpy(from.data() + offset, payload.data(), bytes);
      to.data()[0] = std::byte{0x77};
      copy(to.data() + 1, from.data() + offset, bytes);
      EXPECT_EQ(Bytes(to.bytes().begin() + 1, to.bytes().end()), payload);
      EXPECT_EQ(to.data()[0], std::byte{0x77});
    }
  }
}

TEST(CopyPastCacheTest, CopiesAnyNumberOfBytesBetweenAnyAddresses) { CopyAll(CopyPastCache); }

TEST(CopyPastCacheTest, SumsWhatItCopies) {
  CopyAll([](std::byte* to, const std::byte* from, size_t bytes) {
    std::vector<uint64_t> sums(ChunkCount(bytes));
    ChunkSummer summer;
    summer.Start(kChunkBytes, sums.data());
    CopyPastCacheSummed(to, from, bytes, from, &summer);
    EXPECT_EQ(summer.Finish(), sums.size());
    for (size_t chunk = 0; chunk < sums.size(); ++chunk) {
      const size_t begin = chunk * kChunkBytes;
      EXPECT_EQ(sums[chunk], ChunkSum(from + begin, std::min(kChunkBytes, bytes - begin)));
    }
  });
}

}  // namespace
}  // namespace quarry::transport::shm
