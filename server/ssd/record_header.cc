#include "server/ssd/record_header.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "common/checksum.h"
#include "quarry/model_spec.h"

namespace quarry::server {
namespace {

constexpr uint64_t kMagic = 0x4B434F4C42595251;  // "QRYBLOCK"
constexpr uint32_t kVersion = 1;
constexpr size_t kNamespaceIdBytes = 32;

struct Layout {
  uint64_t magic;
  uint32_t version;
  uint32_t header_bytes;
  uint64_t sum;
  uint64_t generation;
  uint64_t root;
  uint32_t payload_bytes;
  uint16_t shard;
  uint8_t group;
  uint8_t hash_bytes;
  char namespace_id[kNamespaceIdBytes];
  char hash[kMaxHashBytes];
  char encryption[64];
};
static_assert(sizeof(Layout) == 208);
static_assert(kMaxHashBytes == 64);

uint64_t SumOf(const std::byte* header, size_t bytes) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  constexpr size_t kSumAt = offsetof(Layout, sum);
  constexpr size_t kBehindSum = kSumAt + sizeof(uint64_t);
  const uint64_t zero = 0;
  XXH3_64bits_update(&state, header, kSumAt);
  XXH3_64bits_update(&state, &zero, sizeof zero);
  XXH3_64bits_update(&state, header + kBehindSum, bytes - kBehindSum);
  return XXH3_64bits_digest(&state);
}

void Seal(std::byte* header) {
  Layout layout;
  std::memcpy(&layout, header, sizeof layout);
  layout.sum = SumOf(header, layout.header_bytes);
  std::memcpy(header, &layout, sizeof layout);
}

bool IsOf(const Layout& layout, const RecordHeader& expected) {
  const RecordIdentity& identity = expected.identity;
  return layout.generation == expected.generation && layout.payload_bytes == expected.payload_bytes &&
         layout.shard == identity.shard && layout.group == identity.group &&
         absl::string_view(layout.namespace_id, kNamespaceIdBytes) == identity.namespace_id &&
         absl::string_view(layout.hash, std::min<size_t>(layout.hash_bytes, kMaxHashBytes)) == identity.hash;
}

bool SumsHold(const std::byte* payload, size_t bytes, absl::Span<const uint64_t> sums, ChunkRange chunks) {
  for (size_t chunk = chunks.first; chunk < std::min(chunks.end, sums.size()); ++chunk) {
    const size_t begin = chunk * kChunkBytes;
    if (ChunkSum(payload + begin, std::min(kChunkBytes, bytes - begin)) != sums[chunk]) return false;
  }
  return true;
}

}  // namespace

uint64_t RecordHeaderBytes(uint64_t payload_bytes) {
  return InWholePages(sizeof(Layout) + ChunkCount(payload_bytes) * sizeof(uint64_t));
}

uint64_t RecordBytes(uint64_t payload_bytes) { return RecordHeaderBytes(payload_bytes) + InWholePages(payload_bytes); }

void EncodeRecordHeader(const RecordHeader& header, std::byte* to) {
  const uint64_t bytes = RecordHeaderBytes(header.payload_bytes);
  Layout layout{};
  layout.magic = kMagic;
  layout.version = kVersion;
  layout.header_bytes = static_cast<uint32_t>(bytes);
  layout.generation = header.generation;
  layout.root = header.root;
  layout.payload_bytes = header.payload_bytes;
  layout.shard = header.identity.shard;
  layout.group = header.identity.group;
  layout.hash_bytes = static_cast<uint8_t>(header.identity.hash.size());
  header.identity.namespace_id.copy(layout.namespace_id, sizeof layout.namespace_id);
  header.identity.hash.copy(layout.hash, sizeof layout.hash);
  const size_t sums_bytes = header.sums.size() * sizeof(uint64_t);
  std::memcpy(to, &layout, sizeof layout);
  std::memcpy(to + sizeof layout, header.sums.data(), sums_bytes);
  std::memset(to + sizeof layout + sums_bytes, 0, bytes - sizeof layout - sums_bytes);
  Seal(to);
}

void SetGeneration(uint64_t generation, std::byte* header) {
  std::memcpy(header + offsetof(Layout, generation), &generation, sizeof generation);
  Seal(header);
}

RecordCheck DecodeRecordHeader(absl::Span<const std::byte> from, const RecordHeader& expected, uint64_t* root,
                               absl::Span<const uint64_t>* sums) {
  Layout layout;
  if (from.size() < sizeof layout) return RecordCheck::kTorn;
  std::memcpy(&layout, from.data(), sizeof layout);
  if (layout.magic != kMagic || layout.version != kVersion) return RecordCheck::kTorn;
  if (layout.header_bytes != RecordHeaderBytes(layout.payload_bytes) || layout.header_bytes > from.size()) {
    return RecordCheck::kTorn;
  }
  if (layout.sum != SumOf(from.data(), layout.header_bytes)) return RecordCheck::kTorn;
  if (!IsOf(layout, expected)) return RecordCheck::kForeign;
  *root = layout.root;
  *sums = absl::MakeConstSpan(reinterpret_cast<const uint64_t*>(from.data() + sizeof layout),
                              ChunkCount(layout.payload_bytes));
  return RecordCheck::kGood;
}

bool RecordHolds(absl::Span<const std::byte> header, const std::byte* payload, const RecordHeader& expected,
                 uint64_t* root, absl::Span<const uint64_t>* sums, ChunkRange chunks) {
  if (DecodeRecordHeader(header, expected, root, sums) != RecordCheck::kGood) return false;
  const RecordIdentity& identity = expected.identity;
  const uint64_t seed = IdentitySeed(identity.namespace_id, identity.group, identity.shard, identity.hash);
  return RootSum(seed, expected.payload_bytes, *sums) == *root &&
         SumsHold(payload, expected.payload_bytes, *sums, chunks);
}

}  // namespace quarry::server
