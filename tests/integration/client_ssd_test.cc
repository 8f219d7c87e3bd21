// More blocks than memory holds, on an SSD: all come back, from a daemon that goes on, that was
// stopped, and that was killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <memory>
#include <string>

#include "tests/integration/peer.h"
#include "tests/integration/private_server.h"
#include "tests/integration/temporary_dir.h"

namespace quarry::testing {
namespace {

constexpr size_t kShard = 256 << 10;
constexpr size_t kBatch = 16;
// Of 192 MiB, less what the daemon keeps for itself; all blocks together are twice as much.
constexpr size_t kBlocks = 768;
constexpr char kSpilledRecords[] = "quarry_ssd_spilled_records_total";
constexpr size_t kHeaderBytes = 4096;  // of a record
constexpr char kLoads[] = "quarry_ssd_loads_total{outcome=\"good\"}";

class ClientSsdTest : public ::testing::Test {
 protected:
  void Start() {
    PrivateServer::Flags flags;
    flags.more = {"--ssd-dir", dir_.path(), "--ssd-size", "1GiB"};
    server_ = std::make_unique<PrivateServer>("192MiB", flags);
    peer_ = std::make_unique<Peer>(server_->address(), PlainSpec(kShard));
    batch_ = std::make_unique<Batch>(*peer_, 0, kBatch);
  }
  void Leave() {
    batch_.reset();
    peer_.reset();
  }
  // No faster than the disk takes them: what it is not in time for is evicted, not waited for.
  void PutAll() {
    for (uint64_t id = 0; id < kBlocks; id += kBatch) {
      batch_->MoveTo(id);
      ASSERT_TRUE(batch_->Put().ok());
      ASSERT_TRUE(server_->Until([](const PrivateServer::Metrics& metrics) {
        const double arena = metrics.at("quarry_arena_bytes{tier=\"dram\"}");
        // A 32nd of it is for what comes from the SSD.
        return arena * 31 / 32 - metrics.at(kUsedBytes) + metrics.at("quarry_ready_bytes") >= kBatch * kShard;
      }));
    }
    EXPECT_EQ(server_->Metric("quarry_unspilled_blocks_total"), 0);
  }
  // How many come back; the others are misses, and not a byte of any is wrong.
  size_t Hits(size_t blocks) {
    size_t hits = 0;
    for (uint64_t id = 0; id < blocks; id += kBatch) {
      batch_->MoveTo(id);
      const auto got = batch_->Get();
      EXPECT_TRUE(got.ok()) << got.status();
      if (!got.ok()) return 0;
      for (size_t i = 0; i < kBatch; ++i) {
        EXPECT_TRUE(got->items[i].status.ok()) << got->items[i].status;
        if (got->items[i].miss == MissCause::kNone) {
          EXPECT_TRUE(batch_->Holds(i)) << id + i;
          ++hits;
        } else {
          EXPECT_TRUE(batch_->buffers().Untouched(i)) << id + i;
        }
      }
    }
    return hits;
  }

  // Of a family with a series for the directory.
  double Sum(const std::string& family) { return server_->Metric(family + "{dir=\"" + dir_.path() + "\"}"); }
  double BytesRead() { return server_->Metric("quarry_ssd_io_bytes_total{op=\"read\",dir=\"" + dir_.path() + "\"}"); }

  TemporaryDir dir_;
  std::unique_ptr<PrivateServer> server_;
  std::unique_ptr<Peer> peer_;
  std::unique_ptr<Batch> batch_;
};

TEST_F(ClientSsdTest, WhatMemoryHasNoRoomForComesBackFromTheSsd) {
  Start();
  PutAll();
  EXPECT_EQ(Hits(kBlocks), kBlocks);
  EXPECT_GT(server_->Metric(kLoads), kBlocks / 4);
  // What was read is in memory, and what was there has made room: again, the other way round.
  EXPECT_EQ(Hits(kBlocks), kBlocks);
  Leave();
  EXPECT_EQ(server_->Stop(), 0);
}

TEST_F(ClientSsdTest, AMatchSaysWhereBlocksAreAndALeaseKeepsThem) {
  Start();
  PutAll();
  batch_->MoveTo(0);
  const auto match = batch_->Match(60'000);
  ASSERT_TRUE(match.ok()) << match.status();
  EXPECT_EQ(match->usable_tokens, kBatch * 16);
  EXPECT_EQ(match->chains[0].states[0], BlockState::kSsd);
  EXPECT_TRUE(batch_->ComesBack({.lease = match->lease}));
  Leave();
  EXPECT_EQ(server_->Stop(), 0);
}

TEST_F(ClientSsdTest, AMatchBringsWhatAGetWillFollowFor) {
  Start();
  PutAll();
  batch_->MoveTo(0);
  ASSERT_EQ(batch_->Match(60'000)->chains[0].states[0], BlockState::kSsd);
  MatchOptions options;
  options.lease_ms = 60'000;
  options.prefetch_shards = {0};
  const auto match = batch_->Match(options);
  ASSERT_TRUE(match.ok()) << match.status();
  EXPECT_TRUE(server_->Until([](const PrivateServer::Metrics& metrics) { return metrics.at(kLoads) == kBatch; }));
  const auto again = batch_->Match(60'000);
  ASSERT_TRUE(again.ok()) << again.status();
  for (const BlockState state : again->chains[0].states) EXPECT_EQ(state, BlockState::kDram);
  EXPECT_TRUE(batch_->ComesBack({.lease = match->lease}));
  EXPECT_EQ(server_->Metric(kLoads), kBatch);
  options.prefetch_shards = {0, 1};
  const auto refused = batch_->Match(options);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), ::testing::HasSubstr("prefetch_shards[1]: 1 is not below 1"));
  Leave();
  EXPECT_EQ(server_->Stop(), 0);
}

TEST_F(ClientSsdTest, OfALayerItsChunksAreReadAndNoMore) {
  Start();
  PutAll();
  batch_->MoveTo(0);
  ASSERT_EQ(batch_->Match(60'000)->chains[0].states[0], BlockState::kSsd);
  // A piece in the second of four chunks, then two that lie in two chunks.
  ASSERT_EQ(batch_->buffers().piece_bytes(), 30'000u);
  double before = BytesRead();
  EXPECT_TRUE(batch_->PiecesComeBack(3, 4));
  EXPECT_EQ(BytesRead() - before, kBatch * (kHeaderBytes + kShard / 4));
  EXPECT_EQ(batch_->Match(60'000)->chains[0].states[0], BlockState::kSsd);
  before = BytesRead();
  EXPECT_TRUE(batch_->PiecesComeBack(3, 5));
  EXPECT_EQ(BytesRead() - before, kBatch * (kHeaderBytes + kShard));
  EXPECT_EQ(batch_->Match(60'000)->chains[0].states[0], BlockState::kDram);
  Leave();
  EXPECT_EQ(server_->Stop(), 0);
}

TEST_F(ClientSsdTest, AfterAStopAllIsThere) {
  Start();
  PutAll();
  Leave();
  EXPECT_EQ(server_->Stop(), 0);
  Start();
  EXPECT_EQ(server_->Metric("quarry_complete_blocks"), kBlocks);
  EXPECT_EQ(Hits(kBlocks), kBlocks);
  Leave();
  EXPECT_EQ(server_->Stop(), 0);
}

TEST_F(ClientSsdTest, AfterAKillWhatHadBeenWrittenIsThere) {
  Start();
  PutAll();
  const double spilled = Sum(kSpilledRecords);
  EXPECT_GT(spilled, kBlocks / 4);
  Leave();
  server_->Kill();
  Start();
  const auto blocks = static_cast<size_t>(server_->Metric("quarry_complete_blocks"));
  EXPECT_GE(blocks, spilled);
  EXPECT_EQ(Hits(kBlocks), blocks);
  Leave();
  EXPECT_EQ(server_->Stop(), 0);
}

}  // namespace
}  // namespace quarry::testing
