#include "server/cache_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/server/store_testing.h"

namespace quarry::server {
namespace {

using ::testing::HasSubstr;

class CacheServiceTest : public ::testing::Test {
 protected:
  CacheServiceTest() {
    ModelSpec spec = TestSpec(8192, 2);
    spec.groups.push_back({GroupKind::kWindow, 32, 64, 1, 4096, true});
    ns_ = &h_.Open(spec);
  }
  static wire::Limits Limits() {
    wire::Limits limits;
    limits.max_items = 10;
    return limits;
  }
  std::string MatchError(const std::vector<ChainQuery>& chains, uint64_t local_tokens = 0) {
    MatchQuery query;
    query.local_tokens = local_tokens;
    query.chains = chains;
    const auto result = service_.Match(*ns_, query);
    EXPECT_TRUE(absl::IsInvalidArgument(result.status())) << result.status();
    return std::string(result.status().message());
  }
  static std::string Text(const absl::Status& status) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  }

  StoreHarness h_{StoreHarness::Small(1 << 20)};
  ServiceMetrics metrics_;
  CacheService service_{&h_.namespaces, h_.store.get(), &metrics_, Limits()};
  const Namespace* ns_ = nullptr;
  const std::string hashes_ = std::string(11 * 32, 'h');
  HashSpan Hashes(size_t count) { return HashSpan(hashes_, 32).subspan(0, count); }
};

TEST_F(CacheServiceTest, MatchErrorsNameFieldAndBound) {
  EXPECT_EQ(MatchError({}), "chains: none");
  EXPECT_THAT(MatchError({{0, 0, Hashes(1)}, {2, 0, Hashes(1)}}), HasSubstr("chains[1].group: 2 is not below 2"));
  EXPECT_THAT(MatchError({{1, 0, Hashes(1)}, {1, 0, Hashes(1)}}), HasSubstr("chains[1].group: 1 comes twice"));
  EXPECT_THAT(MatchError({{0, 0, HashSpan(absl::string_view(hashes_).substr(0, 15), 32)}}),
              HasSubstr("chains[0].hashes: 15 bytes is not a multiple of the namespace's hash_bytes 32"));
  EXPECT_THAT(MatchError({{0, 0, HashSpan(absl::string_view(hashes_).substr(0, 64), 16)}}),
              HasSubstr("chains[0].hashes: of 16 bytes"));
  EXPECT_THAT(MatchError({{0, 0, Hashes(11)}}), HasSubstr("more than 10 hashes"));
  EXPECT_THAT(MatchError({{0, 0, Hashes(6)}, {1, 0, Hashes(6)}}), HasSubstr("chains[1].hashes: more than 10"));
  EXPECT_THAT(MatchError({{0, 3, Hashes(1)}}, 47), HasSubstr("chains[0].first_block: 3 begins at token 48, beyond"));
  EXPECT_THAT(MatchError({{1, UINT64_MAX, Hashes(1)}}), HasSubstr("chains[0].first_block"));
  EXPECT_THAT(MatchError({{0, 0, Hashes(1)}}, UINT64_MAX), HasSubstr("local_tokens"));
  const auto op = static_cast<size_t>(Op::kMatch);
  EXPECT_EQ(metrics_.errors[op], 10u);
  EXPECT_EQ(metrics_.requests[op], 10u);
}

TEST_F(CacheServiceTest, MatchesAndCounts) {
  const ChainQuery chain{0, 3, Hashes(1)};
  MatchQuery query;
  query.local_tokens = 48;
  query.chains = absl::MakeConstSpan(&chain, 1);
  const auto result = service_.Match(*ns_, query);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->usable_tokens, 48u);
  uint64_t timed = 0;
  for (uint64_t count : metrics_.latency[static_cast<size_t>(Op::kMatch)].snapshot().counts) timed += count;
  EXPECT_EQ(timed, 1u);
}

TEST_F(CacheServiceTest, HashErrorsNameFieldAndBound) {
  EXPECT_TRUE(service_.CheckHashes(*ns_, "runs[2]", 0, hashes_.substr(0, 64)).ok());
  EXPECT_EQ(Text(service_.CheckHashes(*ns_, "runs[0]", 0, hashes_.substr(0, 15))),
            "runs[0].hashes: 15 bytes is not a multiple of the namespace's hash_bytes 32");
  EXPECT_EQ(Text(service_.CheckHashes(*ns_, "runs[0]", 0, "")), "runs[0].hashes: none");
  EXPECT_THAT(Text(service_.CheckHashes(*ns_, "runs[0]", 0, hashes_.substr(0, 65))), HasSubstr("65 bytes"));
  EXPECT_THAT(Text(service_.CheckHashes(*ns_, "runs[0]", 0, hashes_)), HasSubstr("11 hashes exceed 10"));
  EXPECT_THAT(Text(service_.CheckHashes(*ns_, "runs[0]", 7, hashes_)), HasSubstr("runs[0].group: 7"));
}

TEST_F(CacheServiceTest, ShardAndSizeErrorsNameFieldAndBound) {
  EXPECT_TRUE(service_.CheckShard(*ns_, "runs[0]", 0, 1).ok());
  EXPECT_THAT(Text(service_.CheckShard(*ns_, "runs[0]", 0, 2)), HasSubstr("runs[0].shard: 2 is not below 2"));
  EXPECT_THAT(Text(service_.CheckShard(*ns_, "runs[0]", 9, 0)), HasSubstr("runs[0].group: 9"));
  EXPECT_TRUE(service_.CheckPayloadBytes(*ns_, "runs[0]", 0, 1).ok());
  EXPECT_TRUE(service_.CheckPayloadBytes(*ns_, "runs[0]", 0, 8192).ok());
  EXPECT_THAT(Text(service_.CheckPayloadBytes(*ns_, "runs[0]", 0, 0)), HasSubstr("runs[0].bytes: 0 is not in 1..8192"));
  EXPECT_THAT(Text(service_.CheckPayloadBytes(*ns_, "runs[0]", 0, 8193)), HasSubstr("8193"));
  EXPECT_TRUE(service_.CheckPayloadBytes(*ns_, "runs[0]", 1, 4096).ok());
  EXPECT_THAT(Text(service_.CheckPayloadBytes(*ns_, "runs[0]", 1, 4095)),
              HasSubstr("runs[0].bytes: 4095 is not the group's shard_bytes 4096"));
}

TEST_F(CacheServiceTest, UnknownNamespaceIsNamed) {
  EXPECT_EQ(*service_.FindNamespace("t", "n"), ns_);
  const auto missing = service_.FindNamespace("t", "nope");
  EXPECT_TRUE(absl::IsNotFound(missing.status()));
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("nope"));
}

TEST_F(CacheServiceTest, DrainReachesTheStore) {
  EXPECT_FALSE(service_.draining());
  service_.Drain();
  EXPECT_TRUE(service_.draining());
  EXPECT_EQ(h_.Offer(*ns_, 1, 4096).reason, RefusalReason::kDraining);
}

}  // namespace
}  // namespace quarry::server
