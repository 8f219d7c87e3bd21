#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/grpc/convert.h"

namespace quarry::server {
namespace {

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

TEST(ToGrpcTest, KeepsCodeAndMessage) {
  EXPECT_TRUE(ToGrpc(absl::OkStatus()).ok());
  const grpc::Status status = ToGrpc(absl::NotFoundError("no such namespace"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "no such namespace");
}

TEST(ToProtoTest, AMatchResultCarriesStatesAndCause) {
  MatchResult result;
  result.usable_tokens = 32;
  result.chains.push_back({std::string("\1\1\0", 3), {0, 2}});
  result.first_miss = MissCause::kEvicted;
  result.first_miss_block = 2;
  result.lease = "token";
  result.lease_ms = 5;
  result.lease_limit = LeaseLimit::kBlocks;
  v1::MatchResponse response;
  ToProto(result, &response);
  EXPECT_EQ(response.usable_tokens(), 32u);
  ASSERT_EQ(response.chains_size(), 1);
  EXPECT_THAT(response.chains(0).states(),
              testing::ElementsAre(v1::BLOCK_STATE_DRAM, v1::BLOCK_STATE_DRAM, v1::BLOCK_STATE_ABSENT));
  EXPECT_EQ(response.chains(0).end_usable(), 2u);
  EXPECT_EQ(response.first_miss(), v1::MISS_CAUSE_EVICTED);
  EXPECT_EQ(response.first_miss_block(), 2u);
  EXPECT_EQ(response.lease_limit(), v1::LEASE_LIMIT_BLOCKS);
  EXPECT_EQ(response.lease(), "token");
}

}  // namespace
}  // namespace quarry::server
