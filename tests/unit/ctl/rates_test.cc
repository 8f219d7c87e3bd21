// What quarryctl top makes of two samples, and how a page is cut to a screen.
#include "tools/quarryctl/node/rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tools/quarryctl/node/screen.h"
#include "tools/quarryctl/node/top_report.h"

namespace quarry::ctl {
namespace {

using testing::DoubleEq;
using testing::HasSubstr;

NodeSample At(uint64_t uptime_ms) {
  NodeSample sample;
  sample.stats.set_uptime_ms(uptime_ms);
  return sample;
}

void SetOperation(NodeSample* sample, const char* name, uint64_t requests, uint64_t errors, uint64_t time_ns) {
  v1::OperationStats* operation = sample->stats.add_operations();
  operation->set_operation(name);
  operation->set_requests(requests);
  operation->set_errors(errors);
  operation->set_timed(requests - errors);
  operation->set_time_ns(time_ns);
}

v1::NamespaceUsage* AddNamespace(NodeSample* sample, const char* name, uint64_t hashes, uint64_t hits,
                                 uint64_t tokens) {
  v1::NamespaceUsage* usage = sample->usage.add_namespaces();
  usage->mutable_namespace_()->set_tenant("default");
  usage->mutable_namespace_()->set_name(name);
  usage->set_match_hashes(hashes);
  usage->set_match_hits(hits);
  usage->set_saved_tokens(tokens);
  return usage;
}

void SetCounters(NodeSample* sample, uint64_t value) {
  v1::StatsResponse& stats = sample->stats;
  stats.set_match_hashes(4 * value);
  stats.set_match_hits(3 * value);
  stats.set_served_bytes(100 * value);
  stats.set_stored_bytes(10 * value);
  stats.set_evicted_blocks(value);
  v1::RefusalCount* refusal = stats.add_refusals();
  refusal->set_reason(v1::REFUSAL_REASON_NO_SPACE);
  refusal->set_count(2 * value);
  SetOperation(sample, "match", 8 * value, 2 * value, 6'000 * value);
  AddNamespace(sample, "a", 4 * value, 3 * value, 16 * value);
}

// All that one may look at: none may be below 0, whatever happened.
std::vector<double> AllOf(const NodeRates& rates) {
  std::vector<double> all = {rates.seconds,
                             rates.matches_per_second,
                             rates.hashes_per_second,
                             rates.saved_tokens_per_second,
                             rates.get_bytes_per_second,
                             rates.put_bytes_per_second,
                             rates.evicted_blocks_per_second};
  for (const RefusalRate& refusal : rates.refusals) all.push_back(refusal.per_second);
  for (const OperationRates& row : rates.operations) {
    all.insert(all.end(), {row.requests_per_second, row.errors_per_second, row.mean_seconds.value_or(0)});
  }
  for (const NamespaceRates& row : rates.namespaces) {
    all.insert(all.end(), {row.hashes_per_second, row.saved_tokens_per_second});
  }
  return all;
}

TEST(RatesBetween, DividesWhatWasAddedByTheNodesOwnTime) {
  NodeSample before = At(10'000);
  NodeSample after = At(12'000);
  SetCounters(&before, 100);
  SetCounters(&after, 110);
  const NodeRates rates = RatesBetween(before, after);
  EXPECT_FALSE(rates.restarted);
  EXPECT_THAT(rates.seconds, DoubleEq(2));
  EXPECT_THAT(rates.matches_per_second, DoubleEq(40));
  EXPECT_EQ(rates.match_hashes, 40u);
  EXPECT_EQ(rates.match_hits, 30u);
  EXPECT_THAT(rates.hashes_per_second, DoubleEq(20));
  EXPECT_THAT(rates.saved_tokens_per_second, DoubleEq(80));
  EXPECT_THAT(rates.get_bytes_per_second, DoubleEq(500));
  EXPECT_THAT(rates.put_bytes_per_second, DoubleEq(50));
  EXPECT_THAT(rates.evicted_blocks_per_second, DoubleEq(5));
  ASSERT_EQ(rates.refusals.size(), 1u);
  EXPECT_EQ(rates.refusals[0].reason, v1::REFUSAL_REASON_NO_SPACE);
  EXPECT_THAT(rates.refusals[0].per_second, DoubleEq(10));
  ASSERT_EQ(rates.operations.size(), 1u);
  EXPECT_THAT(rates.operations[0].errors_per_second, DoubleEq(10));
  // 60 us for 60 answers.
  EXPECT_THAT(rates.operations[0].mean_seconds.value(), DoubleEq(1e-6));
}

TEST(RatesBetween, AfterARestartCountsFromTheStart) {
  NodeSample before = At(3'600'000);
  NodeSample after = At(4'000);
  SetCounters(&before, 100);
  SetCounters(&after, 8);
  const NodeRates rates = RatesBetween(before, after);
  EXPECT_TRUE(rates.restarted);
  EXPECT_THAT(rates.seconds, DoubleEq(4));
  EXPECT_THAT(rates.put_bytes_per_second, DoubleEq(20));
  EXPECT_EQ(rates.match_hashes, 32u);
  EXPECT_THAT(rates.operations[0].mean_seconds.value(), DoubleEq(1e-6));
  // One that has done more by now than before.
  NodeSample busy = At(4'000);
  SetCounters(&busy, 200);
  EXPECT_THAT(RatesBetween(before, busy).put_bytes_per_second, DoubleEq(500));
}

TEST(RatesBetween, IsNeverNegativeWhicheverCountersWentBack) {
  for (const uint64_t uptime_ms : {0ull, 1ull, 10'000ull, 20'000ull}) {
    for (const uint64_t value : {0ull, 1ull, 99ull, 101ull}) {
      NodeSample before = At(10'000);
      NodeSample after = At(uptime_ms);
      SetCounters(&before, 100);
      SetCounters(&after, value);
      for (const double rate : AllOf(RatesBetween(before, after))) {
        EXPECT_GE(rate, 0) << uptime_ms << " " << value;
        EXPECT_LE(rate, 1e9) << uptime_ms << " " << value;
      }
    }
  }
}

TEST(RatesBetween, OfNothingIsNothing) {
  const NodeRates rates = RatesBetween(At(1'000), At(2'000));
  for (const double rate : AllOf(rates)) EXPECT_LE(rate, 1);
  EXPECT_EQ(TopRecord("s", rates, At(2'000)).ToJson(true).find("nan"), std::string::npos);
}

TEST(RatesBetween, ListsTheBusiestNamespacesFirst) {
  NodeSample before = At(0);
  NodeSample after = At(1'000);
  AddNamespace(&before, "idle", 1'000, 0, 0);
  AddNamespace(&after, "idle", 1'000, 0, 0);
  AddNamespace(&after, "large", 0, 0, 0)->set_payload_bytes(5);
  AddNamespace(&before, "busy", 100, 0, 0);
  AddNamespace(&after, "busy", 110, 5, 0);
  AddNamespace(&after, "new", 20, 20, 320);
  std::vector<std::string> names;
  for (const NamespaceRates& row : RatesBetween(before, after).namespaces) names.push_back(row.name);
  EXPECT_THAT(names, testing::ElementsAre("new", "busy", "large", "idle"));
}

TEST(RatesBetween, ANamespaceThatWasMadeAnewCountsFrom0) {
  NodeSample before = At(0);
  NodeSample after = At(1'000);
  AddNamespace(&before, "a", 100, 90, 1'000);
  AddNamespace(&after, "a", 4, 3, 48);
  const NamespaceRates row = RatesBetween(before, after).namespaces.at(0);
  EXPECT_EQ(row.match_hashes, 4u);
  EXPECT_EQ(row.match_hits, 3u);
  EXPECT_THAT(row.saved_tokens_per_second, DoubleEq(48));
}

TEST(TopPage, SaysThatTheNodeDrainsAndWhatItRefused) {
  NodeSample before = At(1'000);
  NodeSample after = At(2'000);
  SetCounters(&before, 1);
  SetCounters(&after, 2);
  after.stats.set_draining(true);
  const std::string page = TopPage("host:1", RatesBetween(before, after), after).ToText();
  EXPECT_THAT(page, HasSubstr("DRAINING"));
  EXPECT_THAT(page, HasSubstr("refused  no_space 2/s\n"));
  EXPECT_THAT(page, HasSubstr("matches  8/s, of 4/s hashes usable 75.0%, 16/s tokens saved\n"));
}

TEST(TopRecord, HasEveryNumberUnderAKey) {
  NodeSample before = At(1'000);
  NodeSample after = At(2'000);
  SetCounters(&before, 1);
  SetCounters(&after, 2);
  const auto json = nlohmann::json::parse(TopRecord("host:1", RatesBetween(before, after), after).ToJson(true));
  EXPECT_EQ(json["get_bytes_per_second"], 100);
  EXPECT_EQ(json["hit_ratio"], 0.75);
  EXPECT_EQ(json["refusals"][0]["reason"], "no_space");
  EXPECT_EQ(json["operations"][0]["operation"], "match");
  EXPECT_EQ(json["namespaces"][0]["saved_tokens_per_second"], 16);
}

TEST(Fit, CutsLinesAndRows) {
  EXPECT_EQ(Fit("abcdef\ngh\nij\n", {.columns = 4, .rows = 2}), "abcd\ngh");
  EXPECT_EQ(Fit("ab", {.columns = 4, .rows = 2}), "ab");
  EXPECT_EQ(Fit("", {.columns = 4, .rows = 2}), "");
}

TEST(Fit, KeepsCharactersOfSeveralBytesWhole) {
  EXPECT_EQ(Fit("a\xc3\xa4\xe2\x82\xac!", {.columns = 3, .rows = 1}), "a\xc3\xa4\xe2\x82\xac");
}

TEST(Fit, LetsNoNameControlTheTerminal) { EXPECT_EQ(Fit("a\x1b[2Jb\x7f", {.columns = 80, .rows = 1}), "a?[2Jb?"); }

}  // namespace
}  // namespace quarry::ctl
