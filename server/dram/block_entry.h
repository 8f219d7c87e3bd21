// What the index keeps of one block: 64 bytes, one cache line.
#ifndef QUARRY_SERVER_DRAM_BLOCK_ENTRY_H_
#define QUARRY_SERVER_DRAM_BLOCK_ENTRY_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "quarry/model_spec.h"

namespace quarry::server {

// A block's number in the index; kNoBlock: none.
inline constexpr uint32_t kNoBlock = UINT32_MAX;

// What stands in place of a slot's number.
inline constexpr uint32_t kNoSlot = UINT32_MAX;            // this shard is not there
inline constexpr uint32_t kReservedSlot = UINT32_MAX - 1;  // a put of it is under way

// What stands in place of a record's number: the shard is on no SSD.
inline constexpr uint32_t kNoRecord = UINT32_MAX;

struct BlockKey {
  uint16_t ns = 0;
  uint8_t group = 0;
  absl::string_view hash;
};

// Two mutexes guard it, each its own members: that of the index shard, and the policy's.
struct BlockEntry {
  static constexpr size_t kInlineHashBytes = 32;
  static constexpr size_t kHeadBytes = kInlineHashBytes - sizeof(char*);

  // Guarded by the shard's mutex. An entry with pins or leases is never given to another
  // block, nor evicted.
  uint32_t pins;  // matches and puts under way
  uint32_t leases;

  // Guarded by the eviction policy's mutex.
  uint64_t stamp;  // 0: unknown to the policy
  uint32_t depth;

  // Guarded by the shard's mutex.
  uint16_t ns;
  uint8_t hash_bytes : 7;  // 0: the entry is free
  uint8_t used : 1;        // matched or read since it was stored
  uint8_t group : 4;
  uint8_t many : 1;     // `set` rather than `slot`
  uint8_t parked : 1;   // popped by the policy while pinned; goes back with the last pin
  uint8_t removed : 1;  // no longer found, kept only for its pins and leases
  uint8_t no_ssd : 1;   // a put asked that it never be written to an SSD
  union {
    uint32_t slot;       // of the only shard
    uint32_t* set;       // [0]: how many shards; then a slot each; then a record each
    uint32_t next_free;  // when the entry is free
  };
  union {
    char hash[kInlineHashBytes];
    struct {
      char head[kHeadBytes];
      char* tail;  // the rest of a hash longer than kInlineHashBytes
    } split;
  };

  bool Is(const BlockKey& key) const {
    if (ns != key.ns || group != key.group || hash_bytes != key.hash.size()) return false;
    // The usual length first: a comparison of constant length needs no call.
    if (hash_bytes == kInlineHashBytes) return std::memcmp(hash, key.hash.data(), kInlineHashBytes) == 0;
    if (hash_bytes < kInlineHashBytes) return std::memcmp(hash, key.hash.data(), hash_bytes) == 0;
    return std::memcmp(split.head, key.hash.data(), kHeadBytes) == 0 &&
           std::memcmp(split.tail, key.hash.data() + kHeadBytes, hash_bytes - kHeadBytes) == 0;
  }

  // The whole hash; from `buffer` if it does not lie in one piece.
  absl::string_view Hash(char (&buffer)[kMaxHashBytes]) const {
    if (hash_bytes <= kInlineHashBytes) return {hash, hash_bytes};
    std::memcpy(buffer, split.head, kHeadBytes);
    std::memcpy(buffer + kHeadBytes, split.tail, hash_bytes - kHeadBytes);
    return {buffer, hash_bytes};
  }

  // A slot's number, kReservedSlot or kNoSlot for each shard.
  absl::Span<uint32_t> slots() { return many ? absl::MakeSpan(set + 1, set[0]) : absl::MakeSpan(&slot, 1); }
  // Whether a shard of it is in memory.
  bool HasSlot() const {
    const auto all = slots();
    return std::any_of(all.begin(), all.end(), [](uint32_t shard_slot) { return shard_slot < kReservedSlot; });
  }
  absl::Span<const uint32_t> slots() const { return const_cast<BlockEntry*>(this)->slots(); }
};
static_assert(sizeof(BlockEntry) == 64);

}  // namespace quarry::server

#endif  // QUARRY_SERVER_DRAM_BLOCK_ENTRY_H_
