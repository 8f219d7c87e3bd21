// What spill-load makes of its rounds.
#include "tools/bench/spill_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace quarry::bench {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Gets of `unloaded` GB/s; with puts at half of what the disk writes, of so many.
SpillRound Round(double unloaded, double ssd, double plain) {
  SpillRound round;
  for (SpillStepPair& pair : round) pair.ssd.get_gb_per_s = pair.plain.get_gb_per_s = unloaded;
  round[kTargetShare].ssd.get_gb_per_s = ssd;
  round[kTargetShare].plain.get_gb_per_s = plain;
  return round;
}

SpillLoadReport ReportOf(const std::vector<SpillRound>& rounds) {
  SpillLoadReport report;
  Summarise(rounds, &report);
  return report;
}

TEST(SpillLoad, RatiosAreToTheSameRoundsRateWithoutPuts) {
  const SpillLoadReport report = ReportOf({Round(4, 3, 3.5), Round(2, 1.8, 1.9), Round(8, 4, 7)});
  const SpillLoadRow& row = report.rows[kTargetShare];
  EXPECT_THAT(row.round_ratios, ElementsAre(0.75, 0.9, 0.5));
  EXPECT_DOUBLE_EQ(row.ratio, 0.75);
  EXPECT_DOUBLE_EQ(row.plain_ratio, 0.875);
  EXPECT_DOUBLE_EQ(row.spill_ratio, 0.75 / 0.875);
  EXPECT_DOUBLE_EQ(row.steps.ssd.get_gb_per_s, 3);
  EXPECT_DOUBLE_EQ(report.rows[0].ratio, 1);
}

TEST(SpillLoad, TheTargetIsOfHalfTheDisksRate) {
  EXPECT_TRUE(ReportOf({Round(4, 3.2, 4)}).within());
  EXPECT_FALSE(ReportOf({Round(4, 3.1, 4)}).within());
  SpillRound only_full = Round(4, 4, 4);
  only_full.back().ssd.get_gb_per_s = 1;
  EXPECT_TRUE(ReportOf({only_full}).within());
}

TEST(SpillLoad, AServerThatGivesNothingHasNoRatio) { EXPECT_EQ(ReportOf({Round(0, 0, 0)}).rows[1].ratio, 0); }

TEST(SpillLoad, ErrorsAndWrongBytesOfAnyStepCount) {
  SpillRound round = Round(4, 3, 3);
  round[1].plain.errors = 2;
  round[1].plain.first_error = "broken";
  round[3].ssd.wrong_bytes = 5;
  const SpillLoadReport report = ReportOf({round, Round(4, 3, 3)});
  EXPECT_EQ(report.errors, 2);
  EXPECT_EQ(report.wrong_bytes, 5);
  EXPECT_EQ(report.first_error, "broken");
  EXPECT_THAT(FormatText({}, report), HasSubstr("errors: 2, wrong bytes: 5\nfirst error: broken"));
}

TEST(SpillLoadReport, HasALineOfEveryShareAndCountsWhatCameFromTheSsd) {
  SpillRound round = Round(4, 3, 3.75);
  round[kTargetShare].ssd.put_gb_per_s = 0.5;
  round[kTargetShare].ssd.spilled_gb_per_s = 0.25;
  round[kTargetShare].ssd.loaded_bytes = 1 << 20;
  round[1].ssd.unspilled_blocks = 3;
  round[4].ssd.unspilled_blocks = 4;
  SpillLoadReport report = ReportOf({round});
  report.disk_gb_per_s = 1;
  report.io_engine = report.limit_io_engine = "libaio";
  const std::string text = FormatText({}, report);
  for (const char* share : {"   0 %", "  25 %", "  50 %", "  75 %", " 100 %"}) EXPECT_THAT(text, HasSubstr(share));
  EXPECT_THAT(text, HasSubstr("0.75 ##############################..........         0.94         0.80\n"));
  EXPECT_THAT(text, HasSubstr("7 blocks evicted unspilled; 1MiB of what was got came from it"));
  EXPECT_THAT(text, HasSubstr("target at 50 %: at least 0.80: MISSED (rounds: 0.75)"));
  EXPECT_THAT(text, Not(HasSubstr("first error")));
  const json result = json::parse(FormatJson({}, report));
  ASSERT_EQ(result["shares"].size(), 5);
  const json& half = result["shares"][2];
  EXPECT_EQ(half["share"], 0.5);
  EXPECT_EQ(half["ratio"], 0.75);
  EXPECT_EQ(half["without_ssd_ratio"], 0.9375);
  EXPECT_EQ(half["spill_ratio"], 0.8);
  EXPECT_EQ(half["put_gb_per_s"], 0.5);
  EXPECT_EQ(half["spilled_gb_per_s"], 0.25);
  EXPECT_EQ(half["loaded_bytes"], 1 << 20);
  EXPECT_EQ(result["within"], false);
  EXPECT_EQ(result["limit_disk_gb_per_s"], 1);
}

}  // namespace
}  // namespace quarry::bench
