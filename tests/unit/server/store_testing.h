// What the block store's tests share: namespaces, hashes, puts and matches in few words.
#ifndef QUARRY_TESTS_UNIT_SERVER_STORE_TESTING_H_
#define QUARRY_TESTS_UNIT_SERVER_STORE_TESTING_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/block_store.h"
#include "server/namespaces.h"

namespace quarry::server {

inline constexpr uint32_t kTestTokens = 16;
inline constexpr uint64_t kBlock = 4096;          // payload of a block, of most tests
inline constexpr uint64_t kArenaBytes = 1 << 20;  // of many: 256 blocks

inline ModelSpec TestSpec(uint64_t shard_bytes, uint32_t shards = 1, uint32_t hash_bytes = 32) {
  ModelSpec spec;
  spec.engine = "test";
  spec.layout = "flat";
  spec.model = "m";
  spec.kv_dtype = "bfloat16";
  spec.hash_scheme = "numbers";
  spec.hash_bytes = hash_bytes;
  spec.layers = 1;
  spec.groups.push_back({GroupKind::kFull, kTestTokens, 0, shards, shard_bytes, false});
  return spec;
}

// A hash that says which block it is.
inline std::string TestHash(uint64_t id, uint32_t hash_bytes = 32) {
  std::string hash(hash_bytes, '\0');
  for (uint32_t i = 0; i + 8 <= hash_bytes; i += 8) {
    const uint64_t word = (id + i) * 0x9E3779B97F4A7C15u;
    std::memcpy(&hash[i], &word, 8);
  }
  std::memcpy(&hash[0], &id, 8);
  return hash;
}

inline std::string TestHashes(const std::vector<uint64_t>& ids, uint32_t hash_bytes = 32) {
  std::string hashes;
  for (uint64_t id : ids) hashes += TestHash(id, hash_bytes);
  return hashes;
}

inline std::vector<uint64_t> Range(uint64_t first, uint64_t count) {
  std::vector<uint64_t> ids(count);
  for (uint64_t i = 0; i < count; ++i) ids[i] = first + i;
  return ids;
}

// First and last word of a payload name its block and shard.
inline void FillPayload(const SlotRef& slot, uint64_t id, uint64_t bytes) {
  std::memcpy(slot.payload(), &id, 8);
  std::memcpy(slot.payload() + bytes - 8, &id, 8);
  slot.header()->payload_bytes = bytes;
}
inline bool PayloadIs(const SlotRef& slot, uint64_t id) {
  if (!slot) return false;
  uint64_t first = 0;
  uint64_t last = 0;
  std::memcpy(&first, slot.payload(), 8);
  std::memcpy(&last, slot.payload() + slot.header()->payload_bytes - 8, 8);
  return first == id && last == id;
}

class StoreHarness {
 public:
  explicit StoreHarness(BlockStoreOptions options) {
    auto created = BlockStore::Create(options, &clock);
    EXPECT_TRUE(created.ok()) << created.status();
    store = *std::move(created);
  }
  // 64 KiB slabs, nothing touched before it is used.
  static BlockStoreOptions Small(uint64_t arena_bytes) {
    BlockStoreOptions options;
    options.arena_bytes = arena_bytes;
    options.slab_bytes = 64 << 10;
    options.prefault = false;
    options.ghost_entries = 1 << 14;
    return options;
  }

  const Namespace& Open(const ModelSpec& spec, const std::string& name = "n", const std::string& tenant = "t") {
    auto opened = namespaces.Open(tenant, name, spec, false);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return *opened->ns;
  }

  OfferResult Offer(const Namespace& ns, uint64_t id, uint64_t bytes, uint64_t depth = 0, uint64_t parent = 0,
                    uint32_t shard = 0, uint32_t group = 0, uint32_t retain_ms = 0) {
    const std::string hash = TestHash(id, ns.spec.hash_bytes);
    std::string parent_hash;
    if (parent != 0) parent_hash = TestHash(parent, ns.spec.hash_bytes);
    PutOffer offer;
    offer.group = group;
    offer.shard = shard;
    offer.hash = hash;
    offer.parent = parent_hash;
    offer.depth = depth;
    offer.bytes = bytes;
    offer.retain_ms = retain_ms;
    return store->Offer(ns, offer);
  }
  PutOutcome Put(const Namespace& ns, uint64_t id, uint64_t bytes, uint64_t depth = 0, uint64_t parent = 0,
                 uint32_t shard = 0, uint32_t group = 0, uint32_t retain_ms = 0) {
    OfferResult offer = Offer(ns, id, bytes, depth, parent, shard, group, retain_ms);
    if (!offer.ticket) return offer.outcome;
    FillPayload(offer.ticket.slot(), id, bytes);
    offer.ticket.Publish();
    return PutOutcome::kStored;
  }
  void PutChain(const Namespace& ns, const std::vector<uint64_t>& ids, uint64_t bytes, size_t from = 0) {
    for (size_t i = from; i < ids.size(); ++i) Put(ns, ids[i], bytes, i, i == 0 ? 0 : ids[i - 1]);
  }
  MatchResult Match(const Namespace& ns, const std::vector<uint64_t>& ids, uint32_t lease_ms = 0, bool touch = true,
                    uint64_t first_block = 0) {
    const std::string hashes = TestHashes(ids, ns.spec.hash_bytes);
    const ChainQuery chain{0, first_block, HashSpan(hashes, ns.spec.hash_bytes)};
    MatchQuery query;
    query.local_tokens = first_block * ns.spec.groups[0].tokens_per_block;
    query.chains = absl::MakeConstSpan(&chain, 1);
    query.lease_ms = lease_ms;
    query.touch = touch;
    return store->Match(ns, query);
  }
  // A match whose further options `set` chooses.
  template <typename Set>
  MatchResult MatchWith(const Namespace& ns, const std::vector<uint64_t>& ids, Set&& set) {
    const std::string hashes = TestHashes(ids, ns.spec.hash_bytes);
    const ChainQuery chain{0, 0, HashSpan(hashes, ns.spec.hash_bytes)};
    MatchQuery query;
    query.chains = absl::MakeConstSpan(&chain, 1);
    set(&query);
    return store->Match(ns, query);
  }
  ReadResult Read(const Namespace& ns, uint64_t id, uint32_t shard = 0, uint32_t group = 0) {
    const std::string hash = TestHash(id, ns.spec.hash_bytes);
    std::vector<ReadResult> results;
    store->Read(ns, group, shard, HashSpan(hash, ns.spec.hash_bytes), &results);
    return results[0];
  }
  bool Has(const Namespace& ns, uint64_t id) { return static_cast<bool>(Read(ns, id).slot); }
  size_t UsableBlocks(const MatchResult& match) { return match.chains[0].usable.end - match.chains[0].usable.first; }

  ManualClock clock;
  NamespaceRegistry namespaces;
  std::unique_ptr<BlockStore> store;
};

}  // namespace quarry::server

#endif  // QUARRY_TESTS_UNIT_SERVER_STORE_TESTING_H_
