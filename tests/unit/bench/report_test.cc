// The keys that scripts rely on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tools/bench/grpc.h"
#include "tools/bench/progress_bar.h"
#include "tools/bench/replay.h"
#include "tools/bench/transfer.h"

namespace quarry::bench {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

TEST(TransferReport, JsonHasTheAgreedKeys) {
  TransferReport report;
  report.gb_per_s = 4.5;
  report.server_cpu_s_per_gb = 0.25;
  const json result = json::parse(FormatJson(TransferOptions{}, report));
  for (const char* key : {"op", "transport", "block_bytes", "segment_bytes", "clients", "gb_per_s", "ops_per_s",
                          "p50_us", "p99_us", "errors", "wrong_bytes", "server_cpu_s_per_gb"}) {
    EXPECT_TRUE(result.contains(key)) << key;
  }
  EXPECT_EQ(result["op"], "get");
  EXPECT_EQ(result["block_bytes"], 2 << 20);
  EXPECT_EQ(result["gb_per_s"], 4.5);
  EXPECT_EQ(result["server_cpu_s_per_gb"], 0.25);
  EXPECT_FALSE(result.contains("ratio"));
}

TEST(TransferReport, JsonAgainstTheLimitAddsRateAndRatio) {
  TransferReport report;
  report.ratio = 0.9;
  report.limit_gb_per_s = 5;
  const json result = json::parse(FormatJson(TransferOptions{}, report));
  EXPECT_EQ(result["limit_gb_per_s"], 5);
  EXPECT_EQ(result["ratio"], 0.9);
  EXPECT_EQ(result["limit_void"], false);
}

TEST(TransferReport, JsonOfAMatchHasTheEchosLatency) {
  TransferReport report;
  report.p50_us = 128;
  report.limit_p50_us = 64;
  report.ratio = 0.5;
  TransferOptions options;
  options.op = TransferOp::kMatch;
  const json result = json::parse(FormatJson(options, report));
  EXPECT_EQ(result["op"], "match");
  EXPECT_EQ(result["limit_p50_us"], 64);
  EXPECT_EQ(result["p50_us_per_hash"], 0.25);
}

TEST(TransferReport, TextSaysThatAComparisonIsVoid) {
  TransferReport report;
  report.ratio = 1.2;
  report.limit_gb_per_s = 3;
  report.iperf3_gb_per_s = 4;
  EXPECT_THAT(FormatText(TransferOptions{}, report), Not(HasSubstr("VOID")));
  report.limit_void = true;
  EXPECT_THAT(FormatText(TransferOptions{}, report), HasSubstr("VOID"));
}

TEST(TransferReport, OfASpillHasTheDiskForALimit) {
  TransferOptions options;
  options.tier = Tier::kSsd;
  options.op = TransferOp::kPut;
  TransferReport report;
  report.gb_per_s = 1.8;
  report.ratio = 0.9;
  report.pair_ratios = {0.9};
  report.limit_gb_per_s = 2;
  report.ssd = SsdReport{.io_engine = "io_uring", .put_gb_per_s = 1.9, .unspilled_blocks = 4, .disk_gb_per_s = 2};
  const json result = json::parse(FormatJson(options, report));
  EXPECT_EQ(result["tier"], "ssd");
  EXPECT_EQ(result["ssd_io"], "io_uring");
  EXPECT_EQ(result["put_gb_per_s"], 1.9);
  EXPECT_EQ(result["unspilled_blocks"], 4);
  EXPECT_EQ(result["limit_disk_gb_per_s"], 2);
  EXPECT_FALSE(result.contains("limit_sockets_gb_per_s"));
  const std::string text = FormatText(options, report);
  EXPECT_THAT(text, HasSubstr("4 blocks evicted unspilled"));
  EXPECT_THAT(text, Not(HasSubstr("sockets")));
}

TEST(TransferReport, OfAColdGetHasBothLimitsAndSaysWhatCameFromTheSsd) {
  TransferOptions options;
  options.tier = Tier::kSsd;
  TransferReport report;
  report.ratio = 0.9;
  report.pair_ratios = {0.9};
  report.limit_gb_per_s = 2;
  report.ssd = SsdReport{.io_engine = "libaio", .from_ssd = 0.995, .disk_gb_per_s = 2, .sockets_gb_per_s = 5};
  const json result = json::parse(FormatJson(options, report));
  EXPECT_EQ(result["from_ssd"], 0.995);
  EXPECT_EQ(result["limit_gb_per_s"], 2);
  EXPECT_EQ(result["limit_disk_gb_per_s"], 2);
  EXPECT_EQ(result["limit_sockets_gb_per_s"], 5);
  const std::string text = FormatText(options, report);
  EXPECT_THAT(text, HasSubstr("99.5 % of the bytes came from it"));
  EXPECT_THAT(text, HasSubstr("plain sockets: 5.00 GB/s"));
}

TEST(GrpcReport, SaysOfEachPartWhetherItIsWithinItsTarget) {
  GrpcReport report;
  report.match = {.p50_us = 90, .p99_us = 349, .empty_p50_us = 60, .empty_p99_us = 100};
  report.get = GrpcReport::Bytes{};
  report.get->ratio = 0.5;
  report.put = GrpcReport::Bytes{};
  report.put->ratio = 0.49;
  report.observers = GrpcReport::Observers{};
  report.observers->loss = 0.02;
  const GrpcOptions options;
  const json result = json::parse(FormatJson(options, report));
  EXPECT_EQ(result["match"]["within"], true);
  EXPECT_EQ(result["match"]["lease"], false);
  EXPECT_EQ(result["get"]["within"], true);
  EXPECT_EQ(result["put"]["within"], false);
  EXPECT_EQ(result["observers"]["within"], false);
  EXPECT_EQ(result["observers"]["watchers"], 10);
  const std::string text = FormatText(options, report);
  EXPECT_THAT(text, HasSubstr("512 hashes, no lease"));
  EXPECT_THAT(text, HasSubstr("ratio at least 0.5: within"));
  EXPECT_THAT(text, HasSubstr("ratio at least 0.5: MISSED"));
  EXPECT_THAT(text, HasSubstr("below 2 %: MISSED"));
  report.match->p99_us = 351;
  EXPECT_EQ(json::parse(FormatJson(options, report))["match"]["within"], false);
  EXPECT_FALSE(json::parse(FormatJson(options, GrpcReport{})).contains("match"));
}

ReplayReport SomeReplay() {
  ReplayReport report;
  report.counts.requests = 10;
  report.counts.hits = {.blocks = 100, .hit_blocks = 25, .tokens = 1000, .hit_tokens = 300};
  report.counts.first_misses[static_cast<int>(MissCause::kEvicted)] = 4;
  report.counts.refusals[static_cast<int>(RefusalReason::kNoSpace)] = 2;
  report.counts.wrong_bytes = 7;
  report.counts.estimates.Add(1.2, 1);
  report.counts.estimates.Add(2.8, 1);
  report.best = {.blocks = 100, .hit_blocks = 50, .tokens = 1000, .hit_tokens = 500};
  report.simulated = HitCounts{.blocks = 100, .hit_blocks = 26, .tokens = 1000, .hit_tokens = 310};
  report.capacity_blocks = 42;
  report.seconds = 2;
  return report;
}

TEST(ReplayReport, JsonHoldsRatiosCausesAndFaults) {
  const json result = json::parse(FormatJson(ReplayOptions{}, SomeReplay()));
  EXPECT_EQ(result["hit_ratio_blocks"], 0.25);
  EXPECT_EQ(result["hit_ratio_tokens"], 0.3);
  EXPECT_EQ(result["best_hit_ratio_tokens"], 0.5);
  EXPECT_EQ(result["simulated_hit_ratio_blocks"], 0.26);
  EXPECT_EQ(result["capacity_blocks"], 42);
  EXPECT_EQ(result["miss_causes"], json({{"evicted", 4}}));
  EXPECT_EQ(result["refused"], 2);
  EXPECT_EQ(result["refusal_reasons"], json({{"no_space", 2}}));
  EXPECT_EQ(result["errors"], 0);
  EXPECT_EQ(result["wrong_bytes"], 7);
  EXPECT_EQ(result["load_estimates"], 2);
  EXPECT_EQ(result["load_estimate_ratio"], 2);
  EXPECT_EQ(result["load_estimates_within_25_percent"], 0.5);
  EXPECT_EQ(result["speed"], "max");
}

TEST(ReplayReport, TextHoldsTheSame) {
  const std::string text = FormatText(ReplayOptions{}, SomeReplay());
  EXPECT_THAT(text, HasSubstr("hit ratio: 30.00 % of tokens, 25.00 % of blocks"));
  EXPECT_THAT(text, HasSubstr("evicted 4"));
  EXPECT_THAT(text, HasSubstr("no_space 2"));
  EXPECT_THAT(text, HasSubstr("wrong bytes: 7"));
}

ReplayReport SomeReplayWithAnSsd() {
  ReplayReport report = SomeReplay();
  report.counts.ssd_hit_blocks = 20;
  report.distinct_blocks = 200;
  report.ssd = ReplaySsd{.counters = {.spilled_bytes = 1050,
                                      .spilled_records = 10,
                                      .moved_bytes = 105,
                                      .catalog_bytes = 45,
                                      .device_bytes = 1155,
                                      .evicted_blocks = 9,
                                      .unspilled_blocks = 5,
                                      .over_budget_blocks = 3,
                                      .reclaimed_extents = 6,
                                      .size_bytes = 5250,
                                      .live_bytes = 4200,
                                      .live_records = 40,
                                      .io_engine = "libaio"},
                         .payload_bytes = 1000,
                         .capacity_blocks = 50};
  return report;
}

TEST(ReplayReport, OfAnSsdSaysWhatEachTierHitAndWhatWasWritten) {
  ReplayOptions options;
  options.server.ssd_write_budget_bytes = 1 << 20;
  const json result = json::parse(FormatJson(options, SomeReplayWithAnSsd()))["ssd"];
  EXPECT_EQ(result["hit_blocks"], 20);
  EXPECT_EQ(result["hit_ratio_blocks"], 0.2);
  EXPECT_EQ(result["capacity_share"], 0.25);
  EXPECT_EQ(result["memory_share"], 0.21);
  EXPECT_EQ(result["spilled_bytes"], 1050);
  EXPECT_EQ(result["moved_bytes"], 105);
  EXPECT_EQ(result["write_amplification"], 1.2);
  EXPECT_DOUBLE_EQ(result["record_write_amplification"].get<double>(), 1200. / 1050);
  EXPECT_EQ(result["evicted_blocks"], 4);
  EXPECT_EQ(result["unspilled_blocks"], 5);
  EXPECT_EQ(result["over_budget_blocks"], 3);
  EXPECT_EQ(result["over_provisioning"], 0.25);
  EXPECT_EQ(result["write_budget_bytes"], 1 << 20);
  const std::string text = FormatText(options, SomeReplayWithAnSsd());
  EXPECT_THAT(text, HasSubstr("5.00 % of blocks from memory, 20.00 % from the SSD (libaio)"));
  EXPECT_THAT(text, HasSubstr("memory for 42 blocks (21.00 % of the distinct ones), SSD for 50 (25.00 %)"));
  EXPECT_THAT(text, HasSubstr("write amplification 1.200 "));
  EXPECT_THAT(text, HasSubstr("4 blocks from the SSD, 5 unspilled (2 that it was late for, 3 times"));
  EXPECT_THAT(text, HasSubstr("25.0 % over-provisioning"));
}

TEST(ReplayReport, WithoutAnSsdDoesNotSpeakOfOne) {
  EXPECT_FALSE(json::parse(FormatJson(ReplayOptions{}, SomeReplay())).contains("ssd"));
  EXPECT_THAT(FormatText(ReplayOptions{}, SomeReplay()), Not(HasSubstr("SSD")));
}

TEST(ReplayReport, OfAnSsdThatTookNothingHasNoRatios) {
  ReplayReport report = SomeReplay();
  report.ssd.emplace();
  const json result = json::parse(FormatJson(ReplayOptions{}, report))["ssd"];
  EXPECT_EQ(result["write_amplification"], 0);
  EXPECT_EQ(result["over_provisioning"], 0);
  EXPECT_EQ(result["capacity_blocks"], 0);
  EXPECT_THAT(FormatText(ReplayOptions{}, report), Not(HasSubstr("budget")));
}

TEST(ReplayCounts, MergeAddsEverything) {
  ReplayCounts a = SomeReplay().counts;
  ReplayCounts b = SomeReplay().counts;
  b.ssd_hit_blocks = 8;
  b.AddError("broken");
  a.Merge(b);
  EXPECT_EQ(a.requests, 20);
  EXPECT_EQ(a.hits.hit_tokens, 600);
  EXPECT_EQ(a.ssd_hit_blocks, 8);
  EXPECT_EQ(a.refused(), 4);
  EXPECT_EQ(a.wrong_bytes, 14);
  EXPECT_EQ(a.estimates.gets, 4);
  EXPECT_EQ(a.estimates.close, 2);
  EXPECT_EQ(a.estimates.taken_seconds, 4);
  EXPECT_EQ(a.errors, 1);
  EXPECT_EQ(a.first_error, "broken");
}

TEST(ProgressLine, ShowsTheShareThatIsDone) {
  EXPECT_EQ(ProgressLine("replay", 1, 4, 2), "replay [##########..............................] 25 %  1/4  2 s");
  EXPECT_THAT(ProgressLine("replay", 4, 4, 2), HasSubstr("100 %"));
  EXPECT_THAT(ProgressLine("replay", 0, 0, 0), HasSubstr("0 %"));
}

}  // namespace
}  // namespace quarry::bench
