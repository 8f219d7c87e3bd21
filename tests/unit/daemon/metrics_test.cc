#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/metrics/exporter.h"
#include "server/metrics/service_metrics.h"

namespace quarry::server {
namespace {

using testing::HasSubstr;
using testing::Not;

size_t BucketOf(int64_t ns) {
  LatencyHistogram histogram;
  histogram.Record(ns);
  const std::vector<uint64_t> counts = histogram.snapshot().counts;
  return static_cast<size_t>(std::find(counts.begin(), counts.end(), 1) - counts.begin());
}

TEST(HistogramTest, BucketsHoldUpToTheirBoundInclusive) {
  EXPECT_EQ(BucketOf(-5), 0u);
  EXPECT_EQ(BucketOf(0), 0u);
  const auto& bounds = LatencyBuckets::kUpperBounds;
  for (size_t i = 0; i < bounds.size(); ++i) {
    EXPECT_EQ(BucketOf(bounds[i]), i);
    EXPECT_EQ(BucketOf(bounds[i] + 1), i + 1);
  }
  EXPECT_EQ(BucketOf(INT64_MAX), bounds.size());
}

TEST(HistogramTest, SnapshotsAreInBaseUnits) {
  LatencyHistogram histogram;
  histogram.Record(1'500'000'000);
  histogram.Record(2'500'000'000);
  const HistogramSnapshot snapshot = histogram.snapshot();
  EXPECT_EQ(snapshot.sum, 4);
  EXPECT_EQ(histogram.sum(), 4'000'000'000u);
  EXPECT_EQ(snapshot.upper_bounds.size(), snapshot.counts.size());
  EXPECT_EQ(snapshot.upper_bounds.front(), 1e-6);
  EXPECT_EQ(snapshot.upper_bounds[snapshot.upper_bounds.size() - 2], 100);
  EXPECT_TRUE(std::isinf(snapshot.upper_bounds.back()));
}

class ExporterTest : public testing::Test {
 protected:
  std::string Text() {
    ExporterSources sources;
    sources.disks = [] { return std::vector<SsdDiskStats>(); };
    sources.store = [this] { return store_; };
    sources.tenant_bytes = [this] { return tenants_; };
    sources.draining = [this] { return draining_; };
    sources.service = &service_;
    sources.version = "1.2.3";
    sources.node_name = "n\"1";
    return Exporter(sources).Text();
  }

  TransferMetrics& Moved(transport::Transfer::Kind kind) { return service_.transfers_of(kind); }

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
  store_.slab_evicted_blocks = 2;
  store_.size_classes.push_back({8192, 2, 10, 30});
  Moved(transport::Transfer::Kind::kWrite).bytes.Record(100);
  Moved(transport::Transfer::Kind::kRead).bytes.Record(200);
  service_.errors[static_cast<int>(Op::kPut)] = 9;
  draining_ = true;
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("quarry_build_info{version=\"1.2.3\",node=\"n\\\"1\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("\nquarry_match_hashes_total 12345678901\n"));
  EXPECT_THAT(text, HasSubstr("\nquarry_match_hits_total 7\n"));
  EXPECT_THAT(text, HasSubstr("quarry_misses_total{cause=\"evicted\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("quarry_refusals_total{reason=\"no_space\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("quarry_evicted_blocks_total{reason=\"space\",tier=\"dram\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("quarry_evicted_blocks_total{reason=\"slab_move\",tier=\"dram\"} 2\n"));
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
  const char* const ops[kOps] = {"match",
                                 "get",
                                 "put",
                                 "fetch",
                                 "open_namespace",
                                 "touch",
                                 "renew_lease",
                                 "release_lease",
                                 "lookup",
                                 "remove",
                                 "list",
                                 "stats",
                                 "watch",
                                 "get_config",
                                 "list_namespaces",
                                 "set_namespace_ttl",
                                 "flush_namespace",
                                 "retire_namespace",
                                 "pin",
                                 "unpin",
                                 "warm",
                                 "drain",
                                 "set_log_level",
                                 "get_health",
                                 "get_ssd"};
  for (int op = 0; op < kOps; ++op) {
    expect(&service_.requests[op], absl::StrCat("quarry_requests_total{op=\"", ops[op], "\"}"));
    expect(&service_.errors[op], absl::StrCat("quarry_request_errors_total{op=\"", ops[op], "\"}"));
  }
  const char* const statuses[kTransferStatuses] = {"ok", "cancelled", "closed", "checksum", "wrong_size"};
  for (int i = 0; i < kTransferStatuses; ++i) {
    const std::string rest = absl::StrCat(R"(",tier="dram",transport="tcp",status=")", statuses[i], "\"}");
    expect(&Moved(transport::Transfer::Kind::kWrite).ended[i], absl::StrCat("quarry_transfers_total{op=\"get", rest));
    expect(&Moved(transport::Transfer::Kind::kRead).ended[i], absl::StrCat("quarry_transfers_total{op=\"put", rest));
  }
  expect(&service_.delivered_items, "quarry_delivered_items_total");
  expect(&service_.delivered_bytes, "quarry_delivered_bytes_total");
  expect(&service_.corrupt_items, "quarry_corrupt_items_total");
  expect(&service_.sessions, "quarry_sessions");
  expect(&service_.sessions_total, "quarry_sessions_opened_total");
  const char* const refusals[kSessionRefusals] = {"handshake", "too_many", "draining", "credential", "unknown_session"};
  for (int i = 0; i < kSessionRefusals; ++i) {
    expect(&service_.sessions_refused[i], absl::StrCat("quarry_sessions_refused_total{reason=\"", refusals[i], "\"}"));
  }
  expect(&service_.transfers_queued, "quarry_transfers_queued");
  expect(&service_.bytes_in_flight, "quarry_transfer_in_flight_bytes");
  expect(&store_.arena_bytes, R"(quarry_arena_bytes{tier="dram"})");
  expect(&store_.used_bytes, R"(quarry_used_bytes{tier="dram"})");
  expect(&store_.payload_bytes, R"(quarry_payload_bytes{tier="dram"})");
  expect(&store_.leased_bytes, R"(quarry_leased_bytes{tier="dram"})");
  expect(&store_.blocks, "quarry_blocks");
  expect(&store_.complete_blocks, "quarry_complete_blocks");
  expect(&store_.leases, "quarry_leases");
  expect(&store_.leased_blocks, "quarry_leased_blocks");
  expect(&store_.max_leases, "quarry_leases_limit");
  expect(&store_.max_leased_blocks, "quarry_leased_blocks_limit");
  expect(&store_.max_leased_bytes, R"(quarry_leased_bytes_limit{tier="dram"})");
  expect(&store_.lease_counts.granted, R"(quarry_leases_begun_total{op="match"})");
  expect(&store_.lease_counts.retained, R"(quarry_leases_begun_total{op="put"})");
  expect(&store_.lease_counts.renewed, "quarry_leases_renewed_total");
  expect(&store_.lease_counts.released, R"(quarry_leases_ended_total{reason="released"})");
  expect(&store_.lease_counts.expired, R"(quarry_leases_ended_total{reason="expired"})");
  for (int i = 1; i < kLeaseLimits; ++i) {
    const absl::string_view limit = Name(static_cast<LeaseLimit>(i));
    expect(&store_.lease_limits[i], absl::StrCat("quarry_leases_limited_total{limit=\"", limit, "\"}"));
  }
  expect(&store_.in_flight_puts, "quarry_in_flight_puts");
  expect(&store_.index_bytes, "quarry_index_bytes");
  expect(&store_.match_hashes, "quarry_match_hashes_total");
  expect(&store_.match_hits, "quarry_match_hits_total");
  expect(&store_.match_uses, "quarry_match_uses_total");
  const char* const memory[] = {"0.5x", "1x", "2x", "4x"};
  for (size_t i = 0; i < store_.estimated_misses.size(); ++i) {
    expect(&store_.estimated_misses[i], absl::StrCat("quarry_estimated_misses_total{memory=\"", memory[i], "\"}"));
  }
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
  expect(&store_.corrupt_blocks, R"(quarry_corrupt_blocks_total{tier="dram"})");
  expect(&store_.free_slabs, R"(quarry_free_slabs{tier="dram"})");
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

TEST_F(ExporterTest, SizesAndDurationsOfTransfersAreHistograms) {
  Moved(transport::Transfer::Kind::kRead).bytes.Record(2 << 20);
  Moved(transport::Transfer::Kind::kRead).latency.Record(3'000'000);
  const std::string text = Text();
  const char* const put = R"({op="put",tier="dram",transport="tcp",le=")";
  EXPECT_THAT(text, HasSubstr(absl::StrCat("quarry_transfer_size_bytes_bucket", put, "1048576\"} 0\n")));
  EXPECT_THAT(text, HasSubstr(absl::StrCat("quarry_transfer_size_bytes_bucket", put, "2097152\"} 1\n")));
  EXPECT_THAT(text, HasSubstr(absl::StrCat("quarry_transfer_duration_seconds_bucket", put, "0.002\"} 0\n")));
  EXPECT_THAT(text, HasSubstr(absl::StrCat("quarry_transfer_duration_seconds_bucket", put, "0.005\"} 1\n")));
  EXPECT_THAT(text, HasSubstr(R"(quarry_transfer_size_bytes_sum{op="put",tier="dram",transport="tcp"} 2097152)"));
}

// Every bound as one would write it.
TEST_F(ExporterTest, HistogramBoundsAreCleanNumbers) {
  std::set<std::string> bounds;
  const std::string text = Text();
  const std::regex bound("le=\"([^\"]*)\"");
  for (std::sregex_iterator it(text.begin(), text.end(), bound), end; it != end; ++it) bounds.insert((*it)[1]);
  EXPECT_EQ(bounds.size(), LatencyBuckets::kUpperBounds.size() + SizeBuckets::kUpperBounds.size() + 1);
  for (const std::string& one : bounds) EXPECT_LE(one.size(), 8u) << one;
  for (const char* one :
       {"1e-06", "2e-06", "5e-06", "1e-05", "0.0001", "0.05", "1", "100", "+Inf", "4096", "67108864"}) {
    EXPECT_EQ(bounds.count(one), 1u) << one;
  }
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
