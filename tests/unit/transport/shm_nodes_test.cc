// Nodes that stay at a client's memory, close their connection, are stopped or die: when what
// they hold is released.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "common/net/event_loop.h"
#include "common/transport/shm/client_channel.h"
#include "tests/integration/child.h"
#include "tests/integration/temporary_dir.h"
#include "tests/unit/transport/items.h"
#include "tests/unit/transport/shm_peers.h"
#include "tests/unit/transport/shm_processes.h"
#include "tests/unit/transport/sockets.h"

namespace quarry::transport::shm {
namespace {

using testing::Child;
using testing::Line;
using testing::TemporaryDir;

// A node by hand, in a process of its own: it enters request 1 and stays in. It listens itself,
// because that is whom the kernel names to its client.
int RunNode(const std::string& path, const Line& line) {
  const auto listener = ListenUnix(path);
  if (!listener.ok()) return 1;
  line.Say("listening");
  RawEnd client(AcceptOne(listener->get()));
  fcntl(client.fd(), F_SETFL, 0);  // blocking
  client.Send({.type = MessageType::kChallenge, .body = std::string(kNonceBytes, 'n')});
  Message message;
  if (!client.Receive(&message) || client.fds().size() != 2) return 2;
  auto board = ServerBoard::Create(std::move(client.fds()[0]), std::move(client.fds()[1]));
  if (!board.ok()) return 3;
  client.Send({.type = MessageType::kReady, .body = "no"});
  std::optional<ServerBoard::Entered> entered;
  uint32_t region = 0;
  while (true) {
    const std::string order = line.Hear();
    if (order == "enter") {
      entered = (*board)->Enter(1);
      line.Say(entered.has_value() ? "in" : "refused");
    } else if (order == "leave") {
      const bool told = (*board)->Leave(*entered);
      line.Say(told ? "told" : "not told");
      if (told) client.Send({.type = MessageType::kReleased, .id = {1, 0}});
    } else if (order == "leave silently") {
      (*board)->Leave(*entered);
      line.Say("left");
    } else if (order == "take a region") {
      if (!client.Receive(&message)) return 4;
      region = message.id.item;
      client.Send({.type = MessageType::kRegionReply, .flag = 1, .id = {0, region}});
    } else if (order == "enter the region") {
      line.Say((*board)->region_gate(region).Enter(region) ? "in" : "refused");
    } else if (order == "leave the region") {
      (*board)->region_gate(region).Leave();
      line.Say("left");
    } else if (order == "close") {
      client.Close();
      line.Say("closed");
    } else if (order == "leave the socket to another") {
      if (fork() == 0) {
        line.Hear();  // until the test is over
        _exit(0);
      }
      line.Say("left");
    } else {
      return 0;
    }
  }
}

class NodeThatGoesAwayTest : public ::testing::Test {
 protected:
  void Connect() {
    ASSERT_EQ(node_.line().Hear(), "listening");
    auto fd = Dial("unix:" + path_, SoonNs());
    ASSERT_TRUE(fd.ok());
    ClientChannelContext context{.on_closed = [this](const absl::Status&) { ++closed_; }};
    context.shared_streams.push_back({fd->release(), &loop_.emplace("t-client")});
    context.deadline_ns = SoonNs();
    auto channel = ShmClientChannel::Create(std::move(context));
    ASSERT_TRUE(channel.ok()) << channel.status();
    channel_ = *std::move(channel);
    channel_->Expose(1, std::make_shared<TestRequest>());
  }
  void TearDown() override { channel_.reset(); }
  std::string Ask(const std::string& order) {
    node_.line().Say(order);
    return node_.line().Hear();
  }
  Release Withdraw() {
    return channel_->Withdraw(1, [this] { ++released_; });
  }
  // Long enough for what should not happen to happen.
  bool StaysHeld() {
    usleep(100'000);
    return released_ == 0;
  }

  const TemporaryDir dir_;
  const std::string path_ = dir_.path() + "/socket";
  Child node_{[this](const Line& line) { return RunNode(path_, line); }};
  std::atomic<int> closed_{0};
  std::atomic<int> released_{0};
  std::optional<EventLoop> loop_;
  std::unique_ptr<ClientChannel> channel_;
};

TEST_F(NodeThatGoesAwayTest, HoldsWhatItIsAtUntilItSaysThatItIsNot) {
  Connect();
  ASSERT_EQ(Ask("enter"), "in");
  EXPECT_EQ(Withdraw(), Release::kHeld);
  EXPECT_TRUE(StaysHeld());
  EXPECT_EQ(Ask("leave"), "told");
  EXPECT_TRUE(Await([this] { return released_ == 1; }));
  EXPECT_EQ(Ask("enter"), "refused");
}

TEST_F(NodeThatGoesAwayTest, HoldsNothingThatItHasLeft) {
  Connect();
  ASSERT_EQ(Ask("enter"), "in");
  ASSERT_EQ(Ask("leave"), "not told");
  EXPECT_EQ(Withdraw(), Release::kReleased);
  EXPECT_EQ(Ask("enter"), "refused");
}

TEST_F(NodeThatGoesAwayTest, KeepsMemoryThatItIsAtRegisteredUntilItLeaves) {
  Connect();
  Memory memory(MemoryKind::kSealedMemfd);
  node_.line().Say("take a region");
  ASSERT_TRUE(channel_->RegisterMemory({memory.data, kMemoryBytes}).ok());
  ASSERT_EQ(Ask("enter the region"), "in");
  std::atomic<bool> unregistered{false};
  std::thread unregistering([&] {
    channel_->UnregisterMemory({memory.data, kMemoryBytes});
    unregistered = true;
  });
  usleep(100'000);  // long enough for what should not happen to happen
  EXPECT_FALSE(unregistered);
  EXPECT_EQ(Ask("enter the region"), "refused");
  EXPECT_EQ(Ask("leave the region"), "left");
  unregistering.join();
}

TEST_F(NodeThatGoesAwayTest, ReleasesByItsDeath) {
  Connect();
  ASSERT_EQ(Ask("enter"), "in");
  EXPECT_EQ(Withdraw(), Release::kHeld);
  node_.Signal(SIGSTOP);
  EXPECT_TRUE(StaysHeld());
  node_.Kill();
  EXPECT_TRUE(Await([this] { return released_ == 1 && closed_ == 1; }));
}

TEST_F(NodeThatGoesAwayTest, ReleasesByItsDeathWhoeverHasItsSocket) {
  Connect();
  ASSERT_EQ(Ask("enter"), "in");
  EXPECT_EQ(Withdraw(), Release::kHeld);
  ASSERT_EQ(Ask("leave the socket to another"), "left");
  node_.Kill();
  EXPECT_TRUE(Await([this] { return released_ == 1 && closed_ == 1; }));
}

TEST_F(NodeThatGoesAwayTest, HoldsWhatItIsAtEvenWhenItHasClosedItsConnection) {
  Connect();
  ASSERT_EQ(Ask("enter"), "in");
  EXPECT_EQ(Withdraw(), Release::kHeld);
  ASSERT_EQ(Ask("close"), "closed");
  ASSERT_TRUE(Await([this] { return closed_ == 1; }));
  EXPECT_TRUE(StaysHeld());
  ASSERT_EQ(Ask("leave silently"), "left");
  EXPECT_TRUE(Await([this] { return released_ == 1; }));
}

}  // namespace
}  // namespace quarry::transport::shm
