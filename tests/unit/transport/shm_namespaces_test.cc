// Ends in user, PID and mount namespaces of their own, and ends that the kernel refuses calls:
// what they can still share.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
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

// Not namespaces: process_vm_readv and process_vm_writev are refused, as by a container's seccomp
// profile.
constexpr int kNoProcessCalls = -1;
constexpr int kNoProcessWrites = -2;

bool RefuseProcessCalls(bool only_writes) {
  constexpr uint32_t kRead = SYS_process_vm_readv;
  constexpr uint32_t kWrite = SYS_process_vm_writev;
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, only_writes ? kWrite : kRead, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kWrite, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(filter)), filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// How the two ends are kept apart, and what the client can then share.
struct Apart {
  const char* name;
  int client;  // namespaces of its own
  int node;
  const char* why_not = "";  // the client's other memory cannot be reached; empty: it can
};
std::ostream& operator<<(std::ostream& out, const Apart& apart) { return out << apart.name; }

const Apart kApart[] = {
    {"ClientInOwnUserPidAndMountNamespaces", CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS, 0, ""},
    // A node may look into namespaces below its own, and into no others.
    {"NodeInOwnUserPidAndMountNamespaces", 0, CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS, "namespace"},
    {"BothInTheirOwn", CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS, CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS,
     "namespace"},
    // It is the node that makes the calls.
    {"ClientThatMayNotReachProcesses", kNoProcessCalls, 0, ""},
    {"NodeThatMayNotReachProcesses", 0, kNoProcessCalls, "process_vm_readv: Operation not permitted"},
    {"NodeThatMayReadProcessesOnly", 0, kNoProcessWrites, "process_vm_writev: Operation not permitted"},
};

// Runs `body` in a process within new namespaces.
int RunWithin(int namespaces, const std::function<int()>& body) {
  if (namespaces < 0 && !RefuseProcessCalls(namespaces == kNoProcessWrites)) return 97;
  if (namespaces <= 0) return body();
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
  const std::string why_not = GetParam().why_not;
  EXPECT_THAT(reached, ::testing::HasSubstr(why_not.empty() ? "reached" : why_not));
  client.line().Say("end");
  EXPECT_EQ(client.Wait(), 0);
}

}  // namespace
}  // namespace quarry::transport::shm
