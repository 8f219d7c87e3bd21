#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/metrics/exporter.h"
#include "server/metrics/service_metrics.h"

namespace quarry::server {
namespace {

using testing::HasSubstr;
using testing::Not;

int BucketOf(int64_t ns) {
  LatencyHistogram histogram;
  histogram.Record(ns);
  const LatencyHistogram::Snapshot snapshot = histogram.snapshot();
  for (int i = 0; i < LatencyHistogram::kBuckets; ++i) {
    if (snapshot.counts[i] == 1) return i;
  }
  return -1;
}

TEST(LatencyHistogramTest, BucketsHoldUpToTheirBoundInclusive) {
  EXPECT_EQ(BucketOf(-5), 0);
  EXPECT_EQ(BucketOf(0), 0);
  EXPECT_EQ(BucketOf(1'000), 0);
  EXPECT_EQ(BucketOf(1'001), 1);
  for (int i = 0; i < LatencyHistogram::kBuckets - 1; ++i) {
    const auto bound = static_cast<int64_t>(std::llround(LatencyHistogram::UpperBound(i) * 1e9));
    EXPECT_EQ(BucketOf(bound), i);
    EXPECT_EQ(BucketOf(bound + 1), i + 1);
  }
  EXPECT_EQ(BucketOf(INT64_MAX), LatencyHistogram::kBuckets - 1);
  EXPECT_TRUE(std::isinf(LatencyHistogram::UpperBound(LatencyHistogram::kBuckets - 1)));
}

TEST(LatencyHistogramTest, SumsWhatItCounts) {
  LatencyHistogram histogram;
  histogram.Record(1'500);
  histogram.Record(2'500);
  EXPECT_EQ(histogram.snapshot().sum_ns, 4'000u);
}

class ExporterTest : public testing::Test {
 protected:
  std::string Text() {
    ExporterSources sources;
    sources.store = [this] { return store_; };
    sources.tenant_bytes = [this] { return tenants_; };
    sources.draining = [this] { return draining_; };
    sources.service = &service_;
    sources.version = "1.2.3";
    sources.node_name = "n\"1";
    return Exporter(sources).Text();
  }

  StoreStats store_;
  ServiceMetrics service_;
  std::vector<std::pair<std::string, uint64_t>> tenants_;
  bool draining_ = false;
};

TEST_F(ExporterTest, ShowsCountersAndGaugesWithTheirLabels) {
  store_.match_hashes = 12345678901;
  store_.match_hits = 7;
  store_.misses[static_cast<int>(MissCause::kEvicted)] = 3;
  store_.refusals[static_cast<int>(RefusalReason::kNoSpace)] = 4;
  store_.evicted_blocks = 5;
  store_.size_classes.push_back({8192, 2, 10, 30});
  service_.read_bytes = 100;
  service_.written_bytes = 200;
  service_.errors[static_cast<int>(Op::kPut)] = 9;
  draining_ = true;
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("quarry_build_info{version=\"1.2.3\",node=\"n\\\"1\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("\nquarry_match_hashes_total 12345678901\n"));
  EXPECT_THAT(text, HasSubstr("\nquarry_match_hits_total 7\n"));
  EXPECT_THAT(text, HasSubstr("quarry_misses_total{cause=\"evicted\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("quarry_refusals_total{reason=\"no_space\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("quarry_evicted_blocks_total{reason=\"space\",tier=\"dram\"} 5\n"));
  EXPECT_THAT(text, HasSubstr("quarry_slots{slot_bytes=\"8192\",state=\"used\",tier=\"dram\"} 10\n"));
  EXPECT_THAT(text, HasSubstr("quarry_size_class_bytes{slot_bytes=\"8192\",state=\"free\",tier=\"dram\"} 245760\n"));
  EXPECT_THAT(text, HasSubstr("quarry_transfer_bytes_total{op=\"get\",tier=\"dram\",transport=\"tcp\"} 100\n"));
  EXPECT_THAT(text, HasSubstr("quarry_transfer_bytes_total{op=\"put\",tier=\"dram\",transport=\"tcp\"} 200\n"));
  EXPECT_THAT(text, HasSubstr("quarry_request_errors_total{op=\"put\"} 9\n"));
  EXPECT_THAT(text, HasSubstr("\nquarry_draining 1\n"));
}

TEST_F(ExporterTest, HistogramBucketsAreCumulative) {
  LatencyHistogram& match = service_.latency[static_cast<int>(Op::kMatch)];
  match.Record(500);
  match.Record(1'500);
  match.Record(INT64_C(200'000'000'000));
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("quarry_request_duration_seconds_bucket{op=\"match\",le=\"1e-06\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("quarry_request_duration_seconds_bucket{op=\"match\",le=\"2e-06\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("quarry_request_duration_seconds_bucket{op=\"match\",le=\"+Inf\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("quarry_request_duration_seconds_count{op=\"match\"} 3\n"));
}

TEST_F(ExporterTest, TenantSeriesAreBoundedAndLoseNoBytes) {
  for (uint64_t i = 1; i <= 100; ++i) tenants_.emplace_back(absl::StrCat("t", i), i);
  const std::string text = Text();
  size_t series = 0;
  for (size_t at = text.find("quarry_tenant_bytes{"); at != std::string::npos;
       at = text.find("quarry_tenant_bytes{", at + 1)) {
    ++series;
  }
  EXPECT_EQ(series, kMaxTenantSeries + 1);
  EXPECT_THAT(text, HasSubstr("quarry_tenant_bytes{tenant=\"t100\",tier=\"dram\"} 100\n"));
  EXPECT_THAT(text, Not(HasSubstr("tenant=\"t80\"")));
  EXPECT_THAT(text, HasSubstr("quarry_tenant_bytes{tenant=\"(other)\",tier=\"dram\"} 3240\n"));  // 1 + .. + 80
}

}  // namespace
}  // namespace quarry::server
