// Ends in user, PID and mount namespaces of their own: what they can still share.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "common/net/event_loop.h"
#include "common/transport/shm/client_channel.h"
#include "tests/integration/child.h"
#include "tests/integration/temporary_dir.h"
#include "tests/unit/transport/items.h"
#include "tests/unit/transport/shm_processes.h"
#include "tests/unit/transport/sockets.h"

namespace quarry::transport::shm {
namespace {

using testing::Child;
using testing::Line;
using testing::TemporaryDir;
using Kind = Transfer::Kind;

// How the two ends are kept apart, and what the client can then share.
struct Apart {
  const char* name;
  int client;  // namespaces of its own
  int node;
};
std::ostream& operator<<(std::ostream& out, const Apart& apart) { return out << apart.name; }

const Apart kApart[] = {
    {"ClientInOwnUserPidAndMountNamespaces", CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS, 0},
    {"NodeInOwnUserPidAndMountNamespaces", 0, CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS},
    {"BothInTheirOwn", CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS, CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS},
};

// Runs `body` in a process within new namespaces.
int RunWithin(int namespaces, const std::function<int()>& body) {
  if (namespaces == 0) return body();
  if (unshare(namespaces) != 0) return 99;
  const pid_t inner = fork();  // the first process of the PID namespace
  if (inner == 0) {
    const int status = body();
    std::fflush(nullptr);
    _exit(status);
  }
  int status = 0;
  waitpid(inner, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

// When told so, writes to request 1 and reads from request 2 of its one client.
int RunGoodNode(int listener, const Line& line) {
  Node node(listener);
  line.Hear();
  TestSlot slot(Payload(3, kMemoryBytes), 7);
  TestSlot other(kMemoryBytes);
  const auto write = node.Start(Kind::kWrite, 1, &slot);
  if (!Await([&] { return write->done(); }) || write->status != TransferStatus::kOk) return 10;
  const auto read = node.Start(Kind::kRead, 2, &other);
  if (!Await([&] { return read->done(); }) || read->status != TransferStatus::kOk) return 11;
  return other.Holds(Payload(3, kMemoryBytes)) ? 0 : 12;
}

int RunGoodClient(const std::string& path, const Line& line) {
  EventLoop loop("t-client");
  Memory shared(MemoryKind::kSealedMemfd);
  Memory own(MemoryKind::kPrivate);
  auto fd = Dial("unix:" + path, SoonNs());
  if (!fd.ok()) return 20;
  ClientChannelContext context{.on_closed = [](const absl::Status&) {}};
  context.shared_streams.push_back({fd->release(), &loop});
  context.deadline_ns = SoonNs();
  auto channel = ShmClientChannel::Create(std::move(context));
  if (!channel.ok()) return 21;
  if (!(*channel)->RegisterMemory({shared.data, kMemoryBytes}).ok()) return 22;
  (*channel)->Expose(1, std::make_shared<OneItem>(shared, true));
  (*channel)->Expose(2, std::make_shared<OneItem>(shared, true));
  const absl::Status reached = (*channel)->RegisterMemory({own.data, kMemoryBytes});
  line.Say(reached.ok() ? "reached" : std::string(reached.message()));
  line.Hear();
  channel->reset();
  return 0;
}

class NamespacesTest : public ::testing::TestWithParam<Apart> {};
INSTANTIATE_TEST_SUITE_P(All, NamespacesTest, ::testing::ValuesIn(kApart),
                         [](const auto& test) { return test.param.name; });

TEST_P(NamespacesTest, MemfdsAreSharedAndOtherMemoryWhereTheKernelAllowsIt) {
  const TemporaryDir dir;
  const std::string path = dir.path() + "/socket";
  const UniqueFd listener = *ListenUnix(path);
  ASSERT_EQ(chmod(path.c_str(), 0777) | chmod(dir.path().c_str(), 0777), 0);
  Child client(
      [&](const Line& line) { return RunWithin(GetParam().client, [&] { return RunGoodClient(path, line); }); });
  Child node(
      [&](const Line& line) { return RunWithin(GetParam().node, [&] { return RunGoodNode(listener.get(), line); }); });
  const std::string reached = client.line().Hear();
  node.line().Say("go");
  const int status = node.Wait();
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
  // A node may look into namespaces below its own, and into no others.
  if (GetParam().node == 0) {
    EXPECT_EQ(reached, "reached");
  } else {
    EXPECT_THAT(reached, ::testing::HasSubstr("namespace"));
  }
  client.line().Say("end");
  EXPECT_EQ(client.Wait(), 0);
}

}  // namespace
}  // namespace quarry::transport::shm
