#include "tools/bench/ssd_counters.h"

#include <gtest/gtest.h>

namespace quarry::bench {
namespace {

constexpr char kPage[] = R"(# HELP quarry_ssd_spilled_bytes_total Bytes of records.
# TYPE quarry_ssd_spilled_bytes_total counter
quarry_ssd_spilled_bytes_total{dir="/a"} 1000
quarry_ssd_spilled_bytes_total{dir="/b"} 3e+03
quarry_ssd_spilled_records_total{dir="/a"} 7
quarry_ssd_moved_bytes_total{dir="/a"} 400
quarry_ssd_catalog_written_bytes_total{for="wal",dir="/a"} 150
quarry_ssd_catalog_written_bytes_total{for="flush",dir="/a"} 50
quarry_ssd_io_info{dir="/a",engine="libaio",direct="true"} 1
quarry_ssd_io_info{dir="/b",engine="threads",direct="true"} 1
quarry_ssd_loaded_bytes_total 99
quarry_match_hits_total 12
quarry_match_ssd_hits_total 5
quarry_unspilled_blocks_total 3
quarry_over_budget_blocks_total 2
quarry_evicted_blocks_total{reason="space",tier="dram"} 20
quarry_evicted_blocks_total{reason="slab_move",tier="dram"} 4
quarry_ssd_io_bytes_total{op="read",dir="/a"} 9000
quarry_ssd_io_bytes_total{op="write",dir="/a"} 5000
quarry_ssd_io_bytes_total{op="write",dir="/b"} 600
quarry_ssd_io_bytes_total{op="sync",dir="/b"} 0
quarry_ssd_reclaimed_extents_total{dir="/a"} 6
quarry_ssd_size_bytes{dir="/a"} 7000
quarry_ssd_live_bytes{dir="/a"} 6500
quarry_ssd_live_records{dir="/a"} 11
quarry_unspilled_blocks_total_of_another 1000
)";

TEST(SsdCounters, AreSumsOverDirectories) {
  const SsdCounters counters = ParseSsdCounters(kPage);
  EXPECT_EQ(counters.spilled_bytes, 4000);
  EXPECT_EQ(counters.spilled_records, 7);
  EXPECT_EQ(counters.moved_bytes, 400);
  EXPECT_EQ(counters.catalog_bytes, 200);
  EXPECT_EQ(counters.loaded_bytes, 99);
  EXPECT_EQ(counters.match_hits, 12);
  EXPECT_EQ(counters.match_ssd_hits, 5);
  EXPECT_EQ(counters.unspilled_blocks, 3);
  EXPECT_EQ(counters.over_budget_blocks, 2);
  EXPECT_EQ(counters.evicted_blocks, 24);
  EXPECT_EQ(counters.reclaimed_extents, 6);
  EXPECT_EQ(counters.size_bytes, 7000);
  EXPECT_EQ(counters.live_bytes, 6500);
  EXPECT_EQ(counters.live_records, 11);
  EXPECT_EQ(counters.io_engine, "libaio");
}

TEST(SsdCounters, DeviceBytesAreThoseWritten) { EXPECT_EQ(ParseSsdCounters(kPage).device_bytes, 5600); }

TEST(SsdCounters, ARecordIsAsLargeAsThoseSpilledOnAverage) {
  EXPECT_EQ(ParseSsdCounters(kPage).record_bytes(), 4000 / 7);
  EXPECT_EQ(ParseSsdCounters("").record_bytes(), 0);
}

TEST(SsdCounters, WriteAmplificationCountsMovesAndTheCatalog) {
  EXPECT_DOUBLE_EQ(ParseSsdCounters(kPage).write_amplification(), 1.15);
  EXPECT_EQ(ParseSsdCounters("").write_amplification(), 0);
}

}  // namespace
}  // namespace quarry::bench
