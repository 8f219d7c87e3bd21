// Clients on the server's host: their memory is read and written by the server itself, and
// everything is as it is over TCP.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/integration/child.h"
#include "tests/integration/peer.h"
#include "tests/integration/private_server.h"
#include "tests/integration/temporary_dir.h"

namespace quarry::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr size_t kShard = 300'000;  // not a multiple of a chunk
constexpr size_t kBlocks = 16;
constexpr uint32_t kSoonMs = kSanitized ? 10'000 : 2'000;  // a deadline that is to pass

std::string MovedBytes(const std::string& op, const std::string& transport) {
  return "quarry_transfer_bytes_total{op=\"" + op + "\",tier=\"dram\",transport=\"" + transport + "\"}";
}

PrivateServer::Flags WithSocket(const std::string& path, std::string transfer = "127.0.0.1:0") {
  return {.transfer = std::move(transfer), .socket = path, .more = {}};
}

class ClientShmTest : public ::testing::Test {
 protected:
  ClientOptions Options(const std::string& transport) {
    ClientOptions options;
    options.transport = transport;
    options.log = [this](absl::string_view line) { log_.emplace_back(line); };
    return options;
  }
  double Moved(const std::string& op, const std::string& transport) {
    return server_->Metric(MovedBytes(op, transport));
  }
  // Items one behind the other in any memory, in two pieces each.
  std::vector<Item> ItemsAt(std::byte* base, const std::string& hashes) {
    std::vector<Item> items;
    for (size_t i = 0; i < kBlocks; ++i) {
      Item item;
      item.hash = absl::string_view(hashes).substr(i * kHashBytes, kHashBytes);
      item.depth = i;
      item.segments = {{base + i * kShard + 1000, kShard - 1000, 0, 1}, {base + i * kShard, 1000, 0, 1}};
      items.push_back(item);
    }
    return items;
  }
  void StopFor(int microseconds) {
    usleep(microseconds);
    server_->Signal(SIGSTOP);
    usleep(20'000);
    server_->Signal(SIGCONT);
  }
  // Of the server's threads whose names begin so: nanoseconds on a processor.
  std::vector<uint64_t> RunTimesOf(const std::string& name) {
    std::vector<uint64_t> times;
    const std::string tasks = "/proc/" + std::to_string(server_->pid()) + "/task";
    for (const auto& task : std::filesystem::directory_iterator(tasks)) {
      std::string comm;
      uint64_t run_ns = 0;
      std::ifstream(task.path() / "comm") >> comm;
      std::ifstream(task.path() / "schedstat") >> run_ns;
      if (absl::StartsWith(comm, name)) times.push_back(run_ns);
    }
    return times;
  }
  static std::string Hashes(uint64_t first) {
    std::string hashes;
    for (size_t i = 0; i < kBlocks; ++i) hashes += HashOf(first + i);
    return hashes;
  }
  // Puts from `base` and gets to it; each byte comes back.
  void ExpectComesBack(const Peer& peer, std::byte* base, uint64_t first) {
    const std::string hashes = Hashes(first);
    Bytes before(kBlocks * kShard);
    for (size_t i = 0; i < before.size(); ++i) before[i] = static_cast<std::byte>(i * 7 + i / 255 + first);
    std::memcpy(base, before.data(), before.size());
    const auto put = peer->Put(peer.ns(), ItemsAt(base, hashes));
    ASSERT_TRUE(put.ok()) << put.status();
    for (const ItemResult& item : put->items) ASSERT_EQ(item.outcome, PutOutcome::kStored);
    std::memset(base, 0, before.size());
    const auto got = peer->Get(peer.ns(), ItemsAt(base, hashes));
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->bytes, before.size());
    EXPECT_EQ(std::memcmp(base, before.data(), before.size()), 0);
  }

  const TemporaryDir dir_;
  const std::string socket_ = dir_.path() + "/quarryd.sock";
  std::vector<std::string> log_;
  std::optional<PrivateServer> server_{std::in_place, "256MiB", WithSocket(socket_)};
};

TEST_F(ClientShmTest, AutoPicksSharedMemoryOverTcpAndOverTheSocket) {
  for (const std::string& address : {server_->address(), "unix:" + socket_}) {
    log_.clear();
    Peer peer(address, PlainSpec(kShard), Options("auto"));
    Batch blocks(peer, 1, kBlocks);
    ASSERT_TRUE(blocks.Put().ok());
    EXPECT_TRUE(blocks.ComesBack());
    EXPECT_THAT(log_, Contains(HasSubstr("transport shm to " + address)));
  }
  EXPECT_EQ(Moved("put", "shm"), kBlocks * kShard);
  EXPECT_EQ(Moved("get", "shm"), 2 * kBlocks * kShard);
  EXPECT_EQ(Moved("get", "tcp"), 0);
}

TEST_F(ClientShmTest, SharedMemoryThatTheLibraryAllocates) {
  Peer peer(server_->address(), PlainSpec(kShard), Options("shm"));
  auto memory = peer->AllocateShared(kBlocks * kShard);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->bytes(), kBlocks * kShard);
  ExpectComesBack(peer, memory->base(), 100);
  EXPECT_EQ(Moved("get", "tcp"), 0);
  *memory = SharedMemory();
  EXPECT_TRUE(absl::IsInvalidArgument(peer->AllocateShared(0).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(peer->AllocateShared(size_t{1} << 50).status()));
}

TEST_F(ClientShmTest, AFileInDevShmThatAnEngineHasMapped) {
  const std::string path = "/dev/shm/quarry-test-" + std::to_string(getpid());
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(ftruncate(fd, kBlocks * kShard), 0);
  void* mapped = mmap(nullptr, kBlocks * kShard, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);  // as engines do
  ASSERT_NE(mapped, MAP_FAILED);
  {
    Peer peer(server_->address(), PlainSpec(kShard), Options("shm"));
    auto region = peer->RegisterMemory(mapped, kBlocks * kShard);
    ASSERT_TRUE(region.ok()) << region.status();
    ExpectComesBack(peer, static_cast<std::byte*>(mapped), 100);
    EXPECT_EQ(Moved("get", "tcp"), 0);
    EXPECT_EQ(Moved("get", "shm"), kBlocks * kShard);
  }
  munmap(mapped, kBlocks * kShard);
  unlink(path.c_str());
}

TEST_F(ClientShmTest, ANamedTransportThatDoesNotWorkIsAnError) {
  server_.emplace("256MiB");
  ClientOptions options = Options("shm");
  options.server = server_->address();
  const auto client = Client::Create(options);
  ASSERT_TRUE(absl::IsFailedPrecondition(client.status())) << client.status();
  EXPECT_THAT(std::string(client.status().message()), HasSubstr("Unix socket"));
  Peer peer(server_->address(), PlainSpec(kShard), Options("auto"));
  EXPECT_THAT(log_, Contains(HasSubstr("transport tcp")));
}

TEST_F(ClientShmTest, ReconnectsToAServerThatWasKilledAndSharesTheSameMemory) {
  Peer peer(server_->address(), PlainSpec(kShard), Options("auto"));
  auto memory = peer->AllocateShared(kBlocks * kShard);
  ASSERT_TRUE(memory.ok());
  ExpectComesBack(peer, memory->base(), 100);
  const std::string address = server_->address();
  server_->Kill();
  server_.emplace("256MiB", WithSocket(socket_, address));
  const std::string hashes = Hashes(1);
  absl::Status status;
  for (int i = 0; i < 1200; ++i) {
    status = peer->Put(peer.ns(), ItemsAt(memory->base(), hashes)).status();
    if (!absl::IsUnavailable(status)) break;
    usleep(50'000);
  }
  ASSERT_TRUE(status.ok()) << status;
  ExpectComesBack(peer, memory->base(), 500);
  EXPECT_EQ(Moved("get", "tcp"), 0);
  EXPECT_TRUE(peer.IsIdle());
}

TEST_F(ClientShmTest, AServerThatIsStoppedHoldsNothingForEverAndGoesOnWhenResumed) {
  Peer peer(server_->address(), PlainSpec(kShard), Options("shm"));
  Batch blocks(peer, 1, kBlocks);
  ASSERT_TRUE(blocks.Put().ok());
  server_->Signal(SIGSTOP);
  CompletionQueue queue;
  ASSERT_TRUE(peer->GetAsync(peer.ns(), blocks.Items(), {.deadline_ms = kSoonMs}, &queue, 0).ok());
  const Completion done = *queue.Next(kPatienceMs);
  EXPECT_TRUE(absl::IsDeadlineExceeded(done.status)) << done.status;
  EXPECT_FALSE(done.held);  // nothing had begun
  blocks.buffers().Forbid();
  server_->Signal(SIGCONT);
  EXPECT_TRUE(server_->BecomesIdle(1));
  blocks.buffers().Allow();
  EXPECT_TRUE(blocks.ComesBack());
  EXPECT_TRUE(peer.IsIdle());
}

TEST_F(ClientShmTest, AServerThatIsStoppedCostsAPutItsDeadlineAndTakesItWhenResumed) {
  Peer peer(server_->address(), PlainSpec(kShard), Options("shm"));
  Batch blocks(peer, 1, kBlocks);
  server_->Signal(SIGSTOP);
  const absl::Status put = blocks.Put({.deadline_ms = kSoonMs});
  EXPECT_TRUE(absl::IsDeadlineExceeded(put)) << put;
  server_->Signal(SIGCONT);
  // At first the put that came too late may still be under way.
  absl::Status again = blocks.Put();
  for (int i = 0; i < 1200 && absl::IsAborted(again); ++i, again = blocks.Put()) usleep(50'000);
  EXPECT_TRUE(again.ok()) << again;
  EXPECT_TRUE(blocks.ComesBack());
  EXPECT_TRUE(peer.IsIdle());
}

TEST_F(ClientShmTest, AServerThatIsStoppedAndResumedBeforeTheDeadlineCostsNothing) {
  constexpr int kRounds = 20;
  Peer peer(server_->address(), PlainSpec(kShard), Options("shm"));
  Batch blocks(peer, 1, kBlocks);
  for (int round = 0; round < kRounds; ++round) {
    blocks.MoveTo(1 + round * kBlocks);
    blocks.Fill();
    CompletionQueue queue;
    ASSERT_TRUE(peer->PutAsync(peer.ns(), blocks.Items(), {}, &queue, 0).ok());
    StopFor(round * 100);
    const Completion put = *queue.Next(kPatienceMs);
    ASSERT_TRUE(put.status.ok()) << put.status;
    for (const ItemResult& item : put.transfer->items) EXPECT_EQ(item.outcome, PutOutcome::kStored);
    blocks.buffers().Clear();
    ASSERT_TRUE(peer->GetAsync(peer.ns(), blocks.Items(), {}, &queue, 0).ok());
    StopFor(round * 100);
    const Completion got = *queue.Next(kPatienceMs);
    ASSERT_TRUE(got.status.ok()) << got.status;
    EXPECT_TRUE(blocks.HoldsAll());
  }
  EXPECT_TRUE(peer.IsIdle());
}

// The data threads take turns, so the clients' copies are spread over them.
TEST_F(ClientShmTest, StreamsOfSeveralClientsAreSpreadOverTheDataThreads) {
  constexpr int kRounds = 40;
  Peer one(server_->address(), PlainSpec(kShard), Options("shm"));
  Peer other(server_->address(), PlainSpec(kShard), Options("shm"));
  for (const Peer* peer : {&one, &other}) {
    Batch blocks(*peer, 1, kBlocks);
    ASSERT_TRUE(blocks.Put().ok());
    for (int round = 0; round < kRounds; ++round) ASSERT_TRUE(blocks.ComesBack());
  }
  const std::vector<uint64_t> run = RunTimesOf("q-data-");
  ASSERT_EQ(run.size(), 2);
  EXPECT_GT(run[0], run[1] / 10);
  EXPECT_GT(run[1], run[0] / 10);
}

TEST_F(ClientShmTest, SeveralStreamsCopyAtTheSameTime) {
  ClientOptions options = Options("shm");
  options.data_streams = 3;
  options.io_threads = 2;
  Peer peer(server_->address(), PlainSpec(kShard), options);
  Batch blocks(peer, 1, 4 * kBlocks);
  ASSERT_TRUE(blocks.Put().ok());
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(blocks.ComesBack());
  EXPECT_TRUE(peer.IsIdle());
}

// Puts and gets over shared memory until it has done so often.
int MoveOften(const Line& line) {
  constexpr int kRounds = 60;
  ClientOptions options;
  options.transport = "shm";
  Peer peer(line.Hear(), PlainSpec(kShard), options);
  Batch blocks(peer, 100'000, kBlocks);
  line.Say("begins");
  for (int round = 0; round < kRounds; ++round) {
    blocks.MoveTo(static_cast<uint64_t>(100'000 + round * static_cast<int>(kBlocks)));
    if (!blocks.Put().ok() || !blocks.ComesBack()) return 1;
  }
  return 0;
}

TEST(ClientShmStoppedTest, ItCostsOnlyItselfAndGoesOnWhenContinued) {
  const TemporaryDir dir;
  Child child(MoveOften);
  PrivateServer server("256MiB", WithSocket(dir.path() + "/quarryd.sock"));
  child.line().Say(server.address());
  ASSERT_EQ(child.line().Hear(), "begins");
  Peer peer(server.address(), PlainSpec(kShard), {.transport = "shm"});
  Batch blocks(peer, 1, kBlocks);
  for (int round = 0; round < 20; ++round) {
    usleep(round * 300);
    child.Signal(SIGSTOP);
    blocks.MoveTo(1 + static_cast<uint64_t>(round) * kBlocks);
    EXPECT_TRUE(blocks.Put().ok());
    EXPECT_TRUE(blocks.ComesBack());
    child.Signal(SIGCONT);
  }
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_TRUE(server.BecomesIdle(1));
}

}  // namespace
}  // namespace quarry::testing
