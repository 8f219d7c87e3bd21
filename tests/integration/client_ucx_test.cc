// Payload by UCX, over its TCP lanes and over those in shared memory: everything is as it is over
// TCP, also when one of the two processes stops or dies in the midst of it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "tests/integration/child.h"
#include "tests/integration/peer.h"
#include "tests/integration/private_server.h"

namespace quarry::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// QUARRY_TEST_UCX_LIBRARY: of another UCX than the system's.
std::string Library() {
  const char* library = std::getenv("QUARRY_TEST_UCX_LIBRARY");
  return library == nullptr ? "" : library;
}

ClientOptions UcxClient(const char* rma = "auto") {
  ClientOptions options;
  options.transport = "ucx";
  options.ucx_library = Library();
  options.ucx_rma = rma;
  return options;
}

PrivateServer::Flags UcxServer(std::string transfer = "127.0.0.1:0", const std::string& rma = "auto") {
  PrivateServer::Flags flags{.transfer = std::move(transfer), .more = {"--ucx", "--ucx-rma=" + rma}};
  if (!Library().empty()) flags.more.push_back("--ucx-library=" + Library());
  return flags;
}

std::string MappedFiles() {
  std::stringstream maps;
  maps << std::ifstream("/proc/self/maps").rdbuf();
  return maps.str();
}

struct Way {
  const char* name;
  const char* lanes;
  const char* rma;  // "always": by UCX's software, because there is no adapter here that does it
};

class ClientUcxTest : public ::testing::TestWithParam<Way> {
 protected:
  static constexpr size_t kShard = (1 << 20) + 1000;  // not a multiple of a chunk
  static constexpr size_t kBlocks = 32;
  static constexpr size_t kAttempts = 50;  // to meet a transfer in its midst
  static constexpr uint32_t kSoonMs = kSanitized ? 5'000 : 1'000;
  static constexpr char kMemory[] = "512MiB";

  ClientUcxTest() { setenv("UCX_TLS", GetParam().lanes, 1); }
  static ClientOptions UcxClient() { return testing::UcxClient(GetParam().rma); }

  void StartServer(const std::string& transfer = "127.0.0.1:0") {
    server_.emplace(kMemory, UcxServer(transfer, GetParam().rma));
  }
  double Moved(const std::string& op, const std::string& transport) {
    return server_->Metric("quarry_transfer_bytes_total{op=\"" + op + "\",tier=\"dram\",transport=\"" + transport +
                           "\"}");
  }
  // Until the first item of the operation has ended, or it all.
  static Completion First(CompletionQueue* queue) { return *queue->Next(kPatienceMs); }
  static Completion Done(CompletionQueue* queue, Completion completion) {
    while (completion.kind != Completion::Kind::kDone) completion = *queue->Next(kPatienceMs);
    return completion;
  }

  std::optional<PrivateServer> server_;
};
INSTANTIATE_TEST_SUITE_P(Lanes, ClientUcxTest,
                         ::testing::Values(Way{"Tcp", "tcp", "never"}, Way{"SharedMemory", "posix,self,tcp", "never"},
                                           Way{"RmaTcp", "tcp", "always"},
                                           Way{"RmaSharedMemory", "posix,self,tcp", "always"}),
                         [](const auto& way) { return std::string(way.param.name); });

TEST_P(ClientUcxTest, EveryByteComesBackByUcx) {
  StartServer();
  Peer peer(server_->address(), PlainSpec(kShard), UcxClient());
  Batch blocks(peer, 1, kBlocks);
  ASSERT_TRUE(blocks.Put().ok());
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(blocks.ComesBack());
  EXPECT_TRUE(blocks.PiecesComeBack(1, 3));
  EXPECT_GE(Moved("get", "ucx"), 5 * kBlocks * kShard);
  EXPECT_EQ(Moved("put", "ucx"), kBlocks * kShard);
  EXPECT_EQ(Moved("get", "tcp"), 0);
  EXPECT_TRUE(peer.IsIdle());
  peer.Leave();
  EXPECT_TRUE(server_->BecomesIdle(0));
  EXPECT_EQ(server_->Stop(), 0);
}

TEST_P(ClientUcxTest, SmallBlocksToo) {
  StartServer();
  Peer peer(server_->address(), PlainSpec(3000), UcxClient());
  Batch blocks(peer, 1, 500);
  ASSERT_TRUE(blocks.Put().ok());
  EXPECT_TRUE(blocks.ComesBack());
  EXPECT_EQ(Moved("get", "tcp"), 0);
}

TEST_P(ClientUcxTest, ClientsOfOtherTransportsAreServedBesides) {
  StartServer();
  Peer by_ucx(server_->address(), PlainSpec(kShard), UcxClient());
  Peer by_tcp(server_->address(), PlainSpec(kShard));
  Batch blocks(by_ucx, 1, kBlocks);
  ASSERT_TRUE(blocks.Put().ok());
  Batch same(by_tcp, 1, kBlocks);
  EXPECT_TRUE(same.ComesBack());
  EXPECT_EQ(Moved("get", "tcp"), kBlocks * kShard);
}

TEST_P(ClientUcxTest, AServerKilledMidGetIsSaidAtOnceAndFoundAgain) {
  StartServer();
  const std::string address = server_->address();
  Peer peer(address, PlainSpec(kShard), UcxClient());
  Batch blocks(peer, 1, kBlocks);
  bool met = false;
  for (size_t attempt = 0; !met && attempt < kAttempts; ++attempt) {
    ASSERT_TRUE(blocks.EventuallyPuts());
    blocks.buffers().Clear();
    CompletionQueue queue;
    ASSERT_TRUE(peer->GetAsync(peer.ns(), blocks.Items(), {.item_completions = true}, &queue, 0).ok());
    const Completion first = First(&queue);
    server_->Kill();
    const Completion done = Done(&queue, first);
    if (done.held) {
      EXPECT_EQ(queue.Next(kPatienceMs)->kind, Completion::Kind::kReleased);
    }
    met = absl::IsUnavailable(done.status);
    if (!met) {
      EXPECT_TRUE(done.status.ok()) << done.status;
    }
    for (size_t i = 0; i < kBlocks; ++i) {
      if (done.transfer->items[i].status.ok()) {
        EXPECT_TRUE(blocks.Holds(i)) << i;
      }
    }
    EXPECT_TRUE(blocks.buffers().GapsIntact());
    StartServer(address);
  }
  EXPECT_TRUE(met) << "no get was under way when the server was killed";
  ASSERT_TRUE(blocks.EventuallyPuts());
  EXPECT_TRUE(blocks.ComesBack());
  EXPECT_TRUE(peer.IsIdle());
}

TEST_P(ClientUcxTest, AServerStoppedMidGetCostsTheDeadlineAndWritesNothingLate) {
  StartServer();
  Peer peer(server_->address(), PlainSpec(kShard), UcxClient());
  Batch blocks(peer, 1, kBlocks);
  ASSERT_TRUE(blocks.Put().ok());
  bool met = false;
  for (size_t attempt = 0; !met && attempt < kAttempts; ++attempt) {
    blocks.buffers().Clear();
    CompletionQueue queue;
    const GetOptions options{.deadline_ms = kSoonMs, .item_completions = true};
    ASSERT_TRUE(peer->GetAsync(peer.ns(), blocks.Items(), options, &queue, 0).ok());
    const Completion first = First(&queue);
    server_->Signal(SIGSTOP);
    const Completion done = Done(&queue, first);
    met = absl::IsDeadlineExceeded(done.status);
    if (!met) {
      EXPECT_TRUE(done.status.ok()) << done.status;
    }
    // What is held is not free before the server goes on.
    if (done.held) {
      EXPECT_FALSE(queue.Next(50).has_value());
    }
    if (!done.held) blocks.buffers().Forbid();
    server_->Signal(SIGCONT);
    if (done.held) {
      EXPECT_EQ(queue.Next(kPatienceMs)->kind, Completion::Kind::kReleased);
      blocks.buffers().Forbid();
    }
    ASSERT_TRUE(server_->BecomesIdle(1));
    blocks.buffers().Allow();
  }
  EXPECT_TRUE(met) << "no get was under way when the server was stopped";
  EXPECT_TRUE(blocks.ComesBack());
  EXPECT_EQ(peer->counters().reconnects, 0u);
  EXPECT_TRUE(peer.IsIdle());
}

TEST_P(ClientUcxTest, AClientThatLeavesMidGetHasItsBuffersBack) {
  StartServer();
  Peer keeper(server_->address(), PlainSpec(kShard), UcxClient());
  Batch blocks(keeper, 1, kBlocks);
  ASSERT_TRUE(blocks.Put().ok());
  for (int i = 0; i < 5; ++i) {
    Peer peer(server_->address(), PlainSpec(kShard), UcxClient());
    Batch again(peer, 1, kBlocks);
    CompletionQueue queue;
    ASSERT_TRUE(peer->GetAsync(peer.ns(), again.Items(), {.item_completions = true}, &queue, 0).ok());
    First(&queue);
    peer.Leave();
    again.buffers().Forbid();  // whoever writes to it now ends the process
    EXPECT_TRUE(blocks.ComesBack());
    again.buffers().Allow();
  }
  EXPECT_TRUE(server_->BecomesIdle(1));
}

// Hears an address, puts or gets there, and says when something has moved; for ever.
int MovesForEver(const Line& line, bool put, const ClientOptions& options) {
  constexpr size_t kShard = (1 << 20) + 1000;
  Peer peer(line.Hear(), PlainSpec(kShard), options);
  for (uint64_t id = put ? 1000 : 1;; id += put ? 32 : 0) {
    Batch blocks(peer, id, 32);
    if (put ? !blocks.Put().ok() : !blocks.ComesBack()) return 1;
    line.Say("moved");
  }
}

TEST_P(ClientUcxTest, AClientKilledInTheMidstOfItLeavesNothing) {
  for (const bool put : {true, false}) {
    SCOPED_TRACE(put ? "put" : "get");
    StartServer();
    Child child([put](const Line& line) { return MovesForEver(line, put, UcxClient()); });
    Child filler([](const Line& line) {
      Peer peer(line.Hear(), PlainSpec(kShard), UcxClient());
      Batch blocks(peer, 1, kBlocks);
      return blocks.Put().ok() ? 0 : 1;
    });
    filler.line().Say(server_->address());
    ASSERT_EQ(filler.Wait(), 0);
    child.line().Say(server_->address());
    for (int i = 0; i < 3; ++i) ASSERT_EQ(child.line().Hear(), "moved");
    child.Kill();
    EXPECT_TRUE(server_->BecomesIdle(0));
    EXPECT_EQ(server_->Stop(), 0);
  }
}

TEST_P(ClientUcxTest, AClientThatIsStoppedCostsOnlyItselfAndGoesOn) {
  StartServer();
  Child child([](const Line& line) { return MovesForEver(line, /*put=*/true, UcxClient()); });
  child.line().Say(server_->address());
  ASSERT_EQ(child.line().Hear(), "moved");
  child.Signal(SIGSTOP);
  {
    Peer peer(server_->address(), PlainSpec(kShard), UcxClient());
    Batch blocks(peer, 1, kBlocks);
    ASSERT_TRUE(blocks.Put().ok());
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(blocks.ComesBack());
  }
  child.Signal(SIGCONT);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(child.line().Hear(), "moved");
}

// ---------------------------------------------------------------- asked for, and not to be had

TEST(ClientUcxChoiceTest, WhereTheNodeDoesNotOfferItItIsAnErrorWithTheReason) {
  PrivateServer server("256MiB");
  ClientOptions options = UcxClient();
  options.server = server.address();
  const auto client = Client::Create(options);
  ASSERT_TRUE(absl::IsFailedPrecondition(client.status())) << client.status();
  EXPECT_THAT(std::string(client.status().message()), HasSubstr("transport ucx: the node does not offer UCX"));
}

TEST(ClientUcxChoiceTest, ALibraryThatIsNotThereIsNamed) {
  PrivateServer server("256MiB", UcxServer());
  ClientOptions options = UcxClient();
  options.server = server.address();
  options.ucx_library = "/nowhere/libucp.so.0";
  const auto client = Client::Create(options);
  ASSERT_TRUE(absl::IsFailedPrecondition(client.status())) << client.status();
  EXPECT_THAT(std::string(client.status().message()), HasSubstr("/nowhere/libucp.so.0"));
  EXPECT_TRUE(server.BecomesIdle(0));
}

TEST(ClientUcxChoiceTest, OtherTransportsMapNoUcx) {
  PrivateServer server("256MiB", UcxServer());
  for (const char* transport : {"tcp", "auto"}) {
    ClientOptions options;
    options.transport = transport;
    Peer peer(server.address(), PlainSpec(10'000), options);
    Batch blocks(peer, 1, 4);
    ASSERT_TRUE(blocks.Put().ok());
    EXPECT_TRUE(blocks.ComesBack());
  }
  EXPECT_THAT(MappedFiles(), Not(HasSubstr("libucp")));
  EXPECT_THAT(MappedFiles(), Not(HasSubstr("libuct")));
}

}  // namespace
}  // namespace quarry::testing
