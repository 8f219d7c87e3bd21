#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/grpc/convert.h"

namespace quarry::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

v1::MatchChain* AddChain(v1::MatchRequest* request, uint32_t group, int hashes, size_t bytes) {
  v1::MatchChain* chain = request->add_chains();
  chain->set_group(group);
  for (int i = 0; i < hashes; ++i) chain->add_hashes(std::string(bytes, static_cast<char>('a' + i)));
  return chain;
}

TEST(PackChainsTest, PacksHashesInOrder) {
  v1::MatchRequest request;
  AddChain(&request, 0, 3, 16)->set_first_block(7);
  AddChain(&request, 2, 1, 16);
  const absl::StatusOr<PackedChains> packed = PackChains(request, 16, 100);
  ASSERT_TRUE(packed.ok()) << packed.status();
  ASSERT_EQ(packed->chains.size(), 2u);
  EXPECT_EQ(packed->chains[0].group, 0u);
  EXPECT_EQ(packed->chains[0].first_block, 7u);
  ASSERT_EQ(packed->chains[0].hashes.size(), 3u);
  EXPECT_EQ(packed->chains[0].hashes[2], std::string(16, 'c'));
  EXPECT_EQ(packed->chains[1].group, 2u);
  EXPECT_EQ(packed->chains[1].hashes.size(), 1u);
}

TEST(PackChainsTest, NamesTheHashOfAWrongLength) {
  for (const size_t bytes : {0u, 15u, 65u}) {
    v1::MatchRequest request;
    AddChain(&request, 0, 2, 32);
    AddChain(&request, 1, 3, 32)->set_hashes(1, std::string(bytes, 'x'));
    const absl::Status status = PackChains(request, 32, 100).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()),
              "chains[1].hashes[1]: " + std::to_string(bytes) + " bytes, the namespace's hash_bytes is 32");
  }
}

TEST(PackChainsTest, BoundsChainsAndHashes) {
  v1::MatchRequest request;
  AddChain(&request, 0, 3, 16);
  AddChain(&request, 1, 3, 16);
  EXPECT_TRUE(PackChains(request, 16, 6).ok());
  EXPECT_THAT(std::string(PackChains(request, 16, 5).status().message()), HasSubstr("chains[1].hashes: 6"));
  for (int i = 0; i < 20; ++i) AddChain(&request, 0, 0, 16);
  EXPECT_THAT(std::string(PackChains(request, 16, 6).status().message()), HasSubstr("chains: 22, at most 16"));
}

TEST(ToProtoTest, AMatchResultCarriesStatesAndCause) {
  MatchResult result;
  result.usable_tokens = 32;
  result.chains.push_back({std::string("\1\1\0", 3), {0, 2}});
  result.chains.push_back({std::string("\4\3", 2), {1, 2}});
  result.first_miss = MissCause::kEvicted;
  result.first_miss_chain = 1;
  result.first_miss_block = 2;
  result.lease = "token";
  result.lease_ms = 5;
  result.lease_limit = LeaseLimit::kBlocks;
  v1::MatchResponse response;
  ToProto(result, &response);
  EXPECT_EQ(response.usable_tokens(), 32u);
  ASSERT_EQ(response.chains_size(), 2);
  EXPECT_THAT(response.chains(0).states(),
              ElementsAre(v1::BLOCK_STATE_DRAM, v1::BLOCK_STATE_DRAM, v1::BLOCK_STATE_ABSENT));
  EXPECT_EQ(response.chains(0).first_usable(), 0u);
  EXPECT_EQ(response.chains(0).end_usable(), 2u);
  EXPECT_THAT(response.chains(1).states(), ElementsAre(v1::BLOCK_STATE_IN_FLIGHT, v1::BLOCK_STATE_INCOMPLETE));
  EXPECT_EQ(response.chains(1).first_usable(), 1u);
  EXPECT_EQ(response.first_miss(), v1::MISS_CAUSE_EVICTED);
  EXPECT_EQ(response.first_miss_chain(), 1u);
  EXPECT_EQ(response.first_miss_block(), 2u);
  EXPECT_EQ(response.lease_limit(), v1::LEASE_LIMIT_BLOCKS);
  EXPECT_EQ(response.lease(), "token");
  EXPECT_EQ(response.lease_ms(), 5u);
}

TEST(ToProtoTest, StatsKeepEveryFieldApart) {
  StoreStats stats;
  uint64_t* const fields[] = {&stats.arena_bytes,   &stats.used_bytes,      &stats.payload_bytes, &stats.leased_bytes,
                              &stats.blocks,        &stats.complete_blocks, &stats.leases,        &stats.index_bytes,
                              &stats.match_hashes,  &stats.match_hits,      &stats.stored_shards, &stats.stored_bytes,
                              &stats.evicted_blocks};
  uint64_t next = 0;
  for (uint64_t* field : fields) *field = ++next;
  for (uint64_t i = 1; i < kMissCauses; ++i) stats.misses[i] = 100 + i;
  for (uint64_t i = 1; i < kRefusalReasons; ++i) stats.refusals[i] = 200 + i;
  stats.size_classes.push_back({301, 302, 303, 304});
  v1::StatsResponse r;
  ToProto(stats, &r);
  EXPECT_THAT((std::vector<uint64_t>{r.arena_bytes(), r.used_bytes(), r.payload_bytes(), r.leased_bytes(), r.blocks(),
                                     r.complete_blocks(), r.leases(), r.index_bytes(), r.match_hashes(), r.match_hits(),
                                     r.stored_shards(), r.stored_bytes(), r.evicted_blocks()}),
              ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13));
  ASSERT_EQ(r.misses_size(), kMissCauses - 1);
  for (const v1::CauseCount& miss : r.misses()) EXPECT_EQ(miss.count(), static_cast<uint64_t>(100 + miss.cause()));
  ASSERT_EQ(r.refusals_size(), kRefusalReasons - 1);
  for (const v1::RefusalCount& refusal : r.refusals()) {
    EXPECT_EQ(refusal.count(), static_cast<uint64_t>(200 + refusal.reason()));
  }
  ASSERT_EQ(r.size_classes_size(), 1);
  EXPECT_EQ(r.size_classes(0).slot_bytes(), 301u);
  EXPECT_EQ(r.size_classes(0).slabs(), 302u);
  EXPECT_EQ(r.size_classes(0).used_slots(), 303u);
  EXPECT_EQ(r.size_classes(0).free_slots(), 304u);
}

TEST(ToProtoTest, ANamespaceKeepsEveryFieldOfItsSpec) {
  Namespace ns;
  ns.tenant = "tenant";
  ns.name = "name";
  ns.id = "id";
  ns.spec = {.engine = "engine",
             .layout = "layout",
             .model = "model",
             .weights_revision = "revision",
             .adapter_digest = "adapter",
             .kv_dtype = "dtype",
             .quantization = "quantization",
             .hash_scheme = "scheme",
             .hash_seed = "seed",
             .hash_bytes = 16,
             .allow_short_hashes = true,
             .layers = 17,
             .groups = {{GroupKind::kWindow, 18, 19, 20, 21, true}}};
  v1::NamespaceInfo info;
  ToProto(ns, &info);
  v1::NamespaceInfo expected;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
      tenant: "tenant" name: "name" id: "id"
      spec {
        engine: "engine" layout: "layout" model: "model" weights_revision: "revision" adapter_digest: "adapter"
        kv_dtype: "dtype" quantization: "quantization" hash_scheme: "scheme" hash_seed: "seed" hash_bytes: 16
        allow_short_hashes: true layers: 17
        groups {
          kind: GROUP_KIND_WINDOW tokens_per_block: 18 window_tokens: 19 shards: 20 shard_bytes: 21 exact_bytes: true
        }
      })",
                                                            &expected));
  EXPECT_EQ(info.DebugString(), expected.DebugString());
}

}  // namespace
}  // namespace quarry::server
