// What one request asks of the cache: RequestControl and the time to live of a namespace.
#include <gtest/gtest.h>

#include <limits>

#include "tests/integration/peer.h"
#include "tests/integration/private_server.h"

namespace quarry::testing {
namespace {

constexpr size_t kShard = 64 << 10;
constexpr uint64_t kFirstId = 1;
constexpr size_t kBlocks = 8;
constexpr RequestControl kOptedOut = {.no_load = true, .no_store = true};

class ClientControlTest : public ::testing::Test {
 protected:
  // Every counter and gauge of hits, misses, puts and requests.
  PrivateServer::Metrics Counters() const {
    PrivateServer::Metrics counters;
    for (const auto& [series, value] : server_.Scrape()) {
      for (const char* family : {"quarry_match", "quarry_misses", "quarry_refusals", "quarry_stored", "quarry_requests",
                                 "quarry_already_there", "quarry_leases", "quarry_transfer_bytes"}) {
        if (series.rfind(family, 0) == 0) counters.emplace(series, value);
      }
    }
    return counters;
  }

  PrivateServer server_{"128MiB"};
  Peer peer_{server_.address(), PlainSpec(kShard)};
  Batch blocks_{peer_, kFirstId, kBlocks};
};

TEST_F(ClientControlTest, WhoOptsOutFindsAndStoresNothingAndMovesNoCounter) {
  ASSERT_TRUE(blocks_.Put().ok());
  ASSERT_TRUE(blocks_.ComesBack());
  Batch fresh(peer_, kFirstId + kBlocks, kBlocks);
  fresh.Fill();
  const auto before = Counters();
  ASSERT_FALSE(before.empty());

  const Chain chain = blocks_.AsChain();
  const auto match = peer_->Match(peer_.ns(), {&chain, 1}, {.local_tokens = 0, .control = kOptedOut});
  ASSERT_TRUE(match.ok()) << match.status();
  EXPECT_EQ(match->usable_tokens, 0u);
  EXPECT_EQ(match->first_miss, MissCause::kOptedOut);
  EXPECT_EQ(match->chains[0].states, std::vector<BlockState>(kBlocks, BlockState::kAbsent));
  EXPECT_FALSE(match->lease);
  EXPECT_TRUE(blocks_.IsMissed(MissCause::kOptedOut, {.control = kOptedOut}));

  blocks_.buffers().Clear();
  FetchOptions fetch;
  fetch.match.control = kOptedOut;
  const auto fetched = peer_->FetchPrefix(peer_.ns(), {&chain, 1}, {blocks_.Destinations()}, fetch);
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_EQ(fetched->fetched_blocks, 0u);
  ASSERT_EQ(fetched->transfer.items.size(), kBlocks);
  EXPECT_EQ(fetched->transfer.items[0].miss, MissCause::kOptedOut);
  EXPECT_TRUE(blocks_.Untouched());

  const auto put = peer_->Put(peer_.ns(), fresh.Items(), {.control = kOptedOut});
  ASSERT_TRUE(put.ok()) << put.status();
  ASSERT_EQ(put->items.size(), kBlocks);
  EXPECT_EQ(put->items[0].outcome, PutOutcome::kRefused);
  EXPECT_EQ(put->items[0].refusal, RefusalReason::kOptedOut);

  EXPECT_EQ(Counters(), before);
  EXPECT_TRUE(fresh.IsMissed(MissCause::kNeverStored));
  EXPECT_TRUE(blocks_.ComesBack());
}

TEST_F(ClientControlTest, OneMayOptOutOfOneOnly) {
  ASSERT_TRUE(blocks_.Put({.control = {.no_load = true}}).ok());
  EXPECT_TRUE(blocks_.ComesBack({.control = {.no_store = true}}));
}

TEST_F(ClientControlTest, EveryItemIsReportedWhereThatIsAsked) {
  CompletionQueue queue;
  GetOptions options;
  options.control = kOptedOut;
  options.item_completions = true;
  const auto id = peer_->GetAsync(peer_.ns(), blocks_.Items(), options, &queue, 7);
  ASSERT_TRUE(id.ok()) << id.status();
  const Ended ended = WaitForEnd(&queue);
  ASSERT_EQ(ended.items.size(), kBlocks);
  EXPECT_EQ(ended.items[kBlocks - 1].item, kBlocks - 1);
  EXPECT_EQ(ended.items[0].item_result->miss, MissCause::kOptedOut);
  EXPECT_EQ(ended.done.operation, *id);
  EXPECT_EQ(ended.done.user_data, 7u);
  EXPECT_FALSE(ended.done.held);
}

TEST_F(ClientControlTest, WhoOptsOutNeedsNoNode) {
  server_.Kill();
  EXPECT_TRUE(blocks_.IsMissed(MissCause::kOptedOut, {.control = kOptedOut}));
  EXPECT_TRUE(absl::IsInvalidArgument(peer_->Get(Namespace(), {}, {.control = kOptedOut}).status()));
}

TEST_F(ClientControlTest, AMatchSaysWhatIsWorthLoadingOnceBothSpeedsAreKnown) {
  ASSERT_TRUE(blocks_.Put().ok());
  const uint64_t tokens = kBlocks * 16;
  const auto advice = [&] {
    const Chain chain = blocks_.AsChain();
    const auto match = peer_->Match(peer_.ns(), {&chain, 1}, {});
    EXPECT_TRUE(match.ok() && match->usable_tokens == tokens) << match.status();
    return match.ok() ? match->advice : LoadAdvice();
  };
  EXPECT_EQ(advice().load_seconds, 0) << "nothing was loaded yet";
  EXPECT_EQ(advice().worth_tokens, tokens);
  ASSERT_TRUE(blocks_.ComesBack());
  const double load_seconds = advice().load_seconds;
  EXPECT_GT(load_seconds, 0);
  EXPECT_EQ(advice().recompute_seconds, 0);

  // An engine a hundred times as slow as loading, in tokens a second, and one as much faster.
  const double equal = static_cast<double>(tokens) / load_seconds;
  const Namespace copy = peer_.ns();
  ASSERT_TRUE(copy.TellPrefillRate(equal / 100).ok());
  EXPECT_EQ(advice().worth_tokens, tokens);
  EXPECT_LT(advice().split_tokens, tokens / 2);
  ASSERT_TRUE(copy.TellPrefillRate(equal * 100).ok());
  EXPECT_EQ(advice().worth_tokens, 0u);
  EXPECT_GT(advice().split_tokens, tokens / 2);
  for (const double bad : {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    EXPECT_TRUE(absl::IsInvalidArgument(copy.TellPrefillRate(bad)));
    EXPECT_TRUE(absl::IsInvalidArgument(
        peer_->OpenNamespace("rate", PlainSpec(kShard), {.prefill_tokens_per_second = bad}).status()));
  }
}

TEST_F(ClientControlTest, BlocksOfANamespaceWithATimeToLiveAreNotFoundAfterIt) {
  const auto brief = peer_->OpenNamespace("brief", PlainSpec(kShard), {.ttl_ms = 1'000});
  ASSERT_TRUE(brief.ok()) << brief.status();
  EXPECT_EQ(brief->ttl_ms(), 1'000u);
  EXPECT_EQ(peer_->OpenNamespace("brief", PlainSpec(kShard), {.ttl_ms = 5'000})->ttl_ms(), 1'000u);
  EXPECT_EQ(peer_.ns().ttl_ms(), 0u);
  blocks_.Fill();
  ASSERT_TRUE(peer_->Put(*brief, blocks_.Items()).ok());
  EXPECT_TRUE(server_.Until([](const auto& metrics) {
    return metrics.at("quarry_expired_blocks_total{tier=\"dram\"}") == kBlocks && metrics.at(kUsedBytes) == 0;
  }));
  const auto got = peer_->Get(*brief, blocks_.Items());
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->items[0].miss, MissCause::kExpired);
}

TEST_F(ClientControlTest, ABadTimeToLiveIsNamed) {
  const absl::Status status = peer_->OpenNamespace("bad", PlainSpec(kShard), {.ttl_ms = 999}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_NE(status.message().find("ttl_ms: 999"), std::string::npos) << status;
}

}  // namespace
}  // namespace quarry::testing
