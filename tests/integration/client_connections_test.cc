// Every way to connect, and every number of threads and streams, moves the same bytes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <list>
#include <string>
#include <thread>

#include "common/net/socket.h"
#include "tests/integration/peer.h"
#include "tests/integration/private_server.h"

namespace quarry::testing {
namespace {

constexpr size_t kShard = 200'000;
constexpr uint64_t kFirstId = 7;

// Puts, matches, gets and fetches, from several threads at once.
void Use(const Peer& peer) {
  constexpr size_t kThreads = 3;
  constexpr size_t kBlocks = 24;
  std::list<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&peer, id = kFirstId + t * 1000] {
      Batch blocks(peer, id, kBlocks);
      EXPECT_TRUE(blocks.IsMissed(MissCause::kNeverStored));
      EXPECT_TRUE(blocks.Put().ok());
      EXPECT_TRUE(blocks.ComesBack());
      EXPECT_TRUE(blocks.ComesBack({.window_bytes = 2 * kShard}));
      blocks.buffers().Clear();
      const Chain chain = blocks.AsChain();
      const auto fetched =
          peer->FetchPrefix(peer.ns(), {&chain, 1}, {blocks.Destinations()}, {.match = {.lease_ms = 0}});
      EXPECT_TRUE(fetched.ok() && fetched->fetched_blocks == kBlocks) << fetched.status();
      EXPECT_TRUE(blocks.HoldsAll());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(peer.IsIdle());
}

struct Way {
  uint32_t io_threads = 1;
  uint32_t data_streams = 1;
  bool verify_checksums = true;
};

class ClientWaysTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Client, ClientWaysTest,
                         ::testing::Values(Way{}, Way{1, 4}, Way{4, 1}, Way{4, 4}, Way{2, 16}, Way{16, 3},
                                           Way{2, 2, false}),
                         [](const auto& test) {
                           return std::to_string(test.param.io_threads) + "Threads" +
                                  std::to_string(test.param.data_streams) + "Streams" +
                                  (test.param.verify_checksums ? "" : "Unchecked");
                         });

TEST_P(ClientWaysTest, MovesEveryByte) {
  PrivateServer server("160MiB");
  ClientOptions options;
  options.io_threads = GetParam().io_threads;
  options.data_streams = GetParam().data_streams;
  options.verify_checksums = GetParam().verify_checksums;
  {
    Peer peer(server.address(), PlainSpec(kShard), options);
    Use(peer);
  }
  EXPECT_TRUE(server.BecomesIdle(0));
  EXPECT_EQ(server.Stop(), 0);
}

TEST(ClientAddressesTest, AUnixSocketMovesEveryByte) {
  const std::string path = ::testing::TempDir() + "quarry-" + std::to_string(getpid()) + ".sock";
  PrivateServer server("160MiB", {.socket = path});
  {
    Peer peer("unix:" + path, PlainSpec(kShard));
    Use(peer);
    Peer beside(server.address(), PlainSpec(kShard));  // sees the same blocks over TCP
    Batch blocks(beside, kFirstId, 24);
    EXPECT_TRUE(blocks.ComesBack());
  }
  EXPECT_TRUE(server.BecomesIdle(0));
  EXPECT_EQ(server.Stop(), 0);
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

TEST(ClientAddressesTest, IPv6MovesEveryByte) {
  HostPort bound;
  if (!ListenTcp({"::1", 0}, &bound).ok()) GTEST_SKIP() << "this machine has no ::1";
  PrivateServer server("160MiB", {.transfer = "[::1]:0"});
  EXPECT_EQ(server.address().rfind("[::1]:", 0), 0u) << server.address();
  {
    Peer peer(server.address(), PlainSpec(kShard));
    Use(peer);
  }
  EXPECT_EQ(server.Stop(), 0);
}

TEST(ClientAddressesTest, SeveralServerThreadsMoveEveryByte) {
  PrivateServer server("160MiB", {.more = {"--control-threads=3", "--data-threads=4"}});
  std::list<Peer> peers;
  for (int i = 0; i < 4; ++i) peers.emplace_back(server.address(), PlainSpec(kShard));
  Use(peers.front());
  for (Peer& peer : peers) {
    Batch blocks(peer, kFirstId, 24);
    EXPECT_TRUE(blocks.ComesBack());
  }
  peers.clear();
  EXPECT_TRUE(server.BecomesIdle(0));
  EXPECT_EQ(server.Stop(), 0);
}

}  // namespace
}  // namespace quarry::testing
