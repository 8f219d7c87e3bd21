#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

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

// Each with a number of its own, so that no two can be taken for each other.
TEST_F(ExporterTest, EveryCountIsExportedUnderItsName) {
  std::vector<std::string> series;
  uint64_t next = 1'000;
  const auto expect = [&](auto* field, absl::string_view name) {
    *field = ++next;
    series.push_back(absl::StrCat("\n", name, " ", next, "\n"));
  };
  const char* const ops[kOps] = {"match", "get", "put", "fetch"};
  for (int op = 0; op < kOps; ++op) {
    expect(&service_.requests[op], absl::StrCat("quarry_requests_total{op=\"", ops[op], "\"}"));
    expect(&service_.errors[op], absl::StrCat("quarry_request_errors_total{op=\"", ops[op], "\"}"));
  }
  expect(&service_.read_bytes, R"(quarry_transfer_bytes_total{op="get",tier="dram",transport="tcp"})");
  expect(&service_.written_bytes, R"(quarry_transfer_bytes_total{op="put",tier="dram",transport="tcp"})");
  expect(&service_.delivered_items, "quarry_delivered_items_total");
  expect(&service_.delivered_bytes, "quarry_delivered_bytes_total");
  expect(&service_.corrupt_items, "quarry_corrupt_items_total");
  expect(&service_.sessions, "quarry_sessions");
  expect(&service_.sessions_total, "quarry_sessions_opened_total");
  expect(&service_.sessions_refused, "quarry_sessions_refused_total");
  expect(&service_.transfers_queued, "quarry_transfers_queued");
  expect(&service_.bytes_in_flight, "quarry_transfer_in_flight_bytes");
  expect(&store_.arena_bytes, R"(quarry_arena_bytes{tier="dram"})");
  expect(&store_.used_bytes, R"(quarry_used_bytes{tier="dram"})");
  expect(&store_.payload_bytes, R"(quarry_payload_bytes{tier="dram"})");
  expect(&store_.leased_bytes, R"(quarry_leased_bytes{tier="dram"})");
  expect(&store_.blocks, "quarry_blocks");
  expect(&store_.complete_blocks, "quarry_complete_blocks");
  expect(&store_.leases, "quarry_leases");
  expect(&store_.in_flight_puts, "quarry_in_flight_puts");
  expect(&store_.index_bytes, "quarry_index_bytes");
  expect(&store_.match_hashes, "quarry_match_hashes_total");
  expect(&store_.match_hits, "quarry_match_hits_total");
  for (int i = 1; i < kMissCauses; ++i) {
    expect(&store_.misses[i], absl::StrCat("quarry_misses_total{cause=\"", Name(static_cast<MissCause>(i)), "\"}"));
  }
  for (int i = 1; i < kRefusalReasons; ++i) {
    const absl::string_view reason = Name(static_cast<RefusalReason>(i));
    expect(&store_.refusals[i], absl::StrCat("quarry_refusals_total{reason=\"", reason, "\"}"));
  }
  expect(&store_.stored_shards, R"(quarry_stored_shards_total{tier="dram"})");
  expect(&store_.stored_bytes, R"(quarry_stored_bytes_total{tier="dram"})");
  expect(&store_.already_there, "quarry_already_there_total");
  expect(&store_.evicted_blocks, R"(quarry_evicted_blocks_total{reason="space",tier="dram"})");
  expect(&store_.evicted_bytes, R"(quarry_evicted_bytes_total{reason="space",tier="dram"})");
  expect(&store_.slab_moves, "quarry_slab_moves_total");
  StoreStats::SizeClass& size_class = store_.size_classes.emplace_back();
  size_class.slot_bytes = 1;
  expect(&size_class.slabs, R"(quarry_slabs{slot_bytes="1",tier="dram"})");
  expect(&size_class.used_slots, R"(quarry_slots{slot_bytes="1",state="used",tier="dram"})");
  expect(&size_class.free_slots, R"(quarry_slots{slot_bytes="1",state="free",tier="dram"})");
  const std::string text = Text();
  for (const std::string& one : series) EXPECT_THAT(text, HasSubstr(one));
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
