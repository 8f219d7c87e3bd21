// Client processes that take their memory away, die or are stopped under the node that copies.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/net/event_loop.h"
#include "common/transport/shm/client_channel.h"
#include "common/transport/shm/server_channel.h"
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
using Kind = Transfer::Kind;

struct Misdeed {
  const char* name;
  MemoryKind kind;
  void (*act)(Memory& memory);
};
std::ostream& operator<<(std::ostream& out, const Misdeed& misdeed) { return out << misdeed.name; }

void Punch(Memory& memory) {
  fallocate(memory.file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kMemoryBytes);
}

const Misdeed kMisdeeds[] = {
    {"PunchesHolesIntoAMemfd", MemoryKind::kSealedMemfd, Punch},
    {"PunchesHolesIntoAFile", MemoryKind::kShmFile, Punch},
    {"CutsAFile", MemoryKind::kShmFile, [](Memory& memory) { (void)!ftruncate(memory.file.get(), 4096); }},
    {"UnmapsItsMemory", MemoryKind::kPrivate, [](Memory& memory) { munmap(memory.data, kMemoryBytes); }},
    {"ForbidsItsMemory", MemoryKind::kPrivate, [](Memory& memory) { mprotect(memory.data, kMemoryBytes, PROT_NONE); }},
};

// Says "ready" once everything is registered and exposed as requests 1 to 4; then hears what to
// do: "act", "act for ever", "blocks", "end".
int RunClient(const std::string& path, const Line& line, const Misdeed& misdeed) {
  EventLoop loop("t-client");
  Memory memory(misdeed.kind);
  auto fd = Dial("unix:" + path, SoonNs());
  if (!fd.ok()) return 2;
  ClientChannelContext context{.on_closed = [](const absl::Status&) {}};
  context.shared_streams.push_back({fd->release(), &loop});
  context.deadline_ns = SoonNs();
  auto channel = ShmClientChannel::Create(std::move(context));
  if (!channel.ok()) return 3;
  if (!(*channel)->RegisterMemory({memory.data, kMemoryBytes}).ok()) return 4;
  for (uint64_t request = 1; request <= 4; ++request) {
    (*channel)->Expose(request, std::make_shared<OneItem>(memory, /*checksum=*/request > 2));
  }
  line.Say("ready");
  while (true) {
    const std::string order = line.Hear();
    if (order == "act") {
      misdeed.act(memory);
      line.Say("done");
    } else if (order == "act for ever") {
      line.Say("done");
      while (true) {
        misdeed.act(memory);
        if (memory.file) (void)!fallocate(memory.file.get(), FALLOC_FL_KEEP_SIZE, 0, kMemoryBytes);
      }
    } else if (order == "blocks") {
      struct stat info {};
      fstat(memory.file.get(), &info);
      line.Say(std::to_string(info.st_blocks) + " " + std::to_string(info.st_size));
    } else {
      _exit(0);  // as it is: the channel would wait for the node
    }
  }
}

class MisbehavingClientTest : public ::testing::TestWithParam<Misdeed> {
 protected:
  // The node comes when the client has been forked: before that there are no threads.
  void StartNode() {
    node_.emplace(listener_.get());
    ASSERT_EQ(client_.line().Hear(), "ready");
  }
  std::string Ask(const std::string& order) {
    client_.line().Say(order);
    return client_.line().Hear();
  }

  const TemporaryDir dir_;
  const std::string path_ = dir_.path() + "/socket";
  const UniqueFd listener_ = *ListenUnix(path_);
  Child client_{[this](const Line& line) { return RunClient(path_, line, GetParam()); }};
  std::optional<Node> node_;
};
INSTANTIATE_TEST_SUITE_P(All, MisbehavingClientTest, ::testing::ValuesIn(kMisdeeds),
                         [](const auto& test) { return test.param.name; });

TEST_P(MisbehavingClientTest, LosesItsSessionAndCostsTheNodeNoMemory) {
  StartNode();
  TestSlot slot(Payload(1, kMemoryBytes), kIdentity);
  auto end = node_->Start(Kind::kWrite, 1, &slot);
  ASSERT_TRUE(Await([&] { return end->done(); }));
  ASSERT_EQ(end->status, TransferStatus::kOk);  // while it behaves

  ASSERT_EQ(Ask("act"), "done");
  const std::string before = Ask("blocks");
  end = node_->Start(Kind::kWrite, 2, &slot);
  ASSERT_TRUE(Await([&] { return end->done() && node_->closed() > 0; }));
  EXPECT_NE(end->status, TransferStatus::kOk);
  EXPECT_EQ(node_->closed(), 1);
  EXPECT_EQ(Ask("blocks"), before) << "the node has filled what the client had given back";
}

TEST_P(MisbehavingClientTest, LosesItsSessionWhenItIsReadFrom) {
  StartNode();
  TestSlot slot(kMemoryBytes);
  ASSERT_EQ(Ask("act"), "done");
  const auto end = node_->Start(Kind::kRead, 2, &slot);
  ASSERT_TRUE(Await([&] { return end->done(); }));
  // Holes of a file read as zeros, which takes no memory, and is what the client has there.
  if (std::string(GetParam().name) != "PunchesHolesIntoAFile") {
    EXPECT_NE(end->status, TransferStatus::kOk);
    EXPECT_TRUE(Await([&] { return node_->closed() == 1; }));
  }
}

TEST_P(MisbehavingClientTest, InTheMidstOfTransfersDoesTheNodeNoHarm) {
  StartNode();
  TestSlot slot(Payload(1, kMemoryBytes), kIdentity);
  TestSlot other(kMemoryBytes);
  ASSERT_EQ(Ask("act for ever"), "done");
  for (int i = 0; i < 50; ++i) {
    const auto write = node_->Start(Kind::kWrite, 1, &slot);
    const auto read = node_->Start(Kind::kRead, 2, &other);
    ASSERT_TRUE(Await([&] { return write->done() && read->done(); }));
  }
  client_.Kill();
  EXPECT_TRUE(slot.Holds(Payload(1, kMemoryBytes)));
}

TEST_P(MisbehavingClientTest, ThatDiesEndsItsTransfers) {
  StartNode();
  TestSlot slot(Payload(1, kMemoryBytes), kIdentity);
  std::vector<TransferEndPtr> ends;
  std::vector<std::unique_ptr<TestSlot>> slots;
  for (int i = 0; i < 10; ++i) {
    ends.push_back(node_->Start(Kind::kWrite, 1, &slot));
    slots.push_back(std::make_unique<TestSlot>(kMemoryBytes));
    ends.push_back(node_->Start(Kind::kRead, static_cast<uint64_t>(2 + i % 3), slots.back().get()));
  }
  client_.Kill();
  ASSERT_TRUE(Await([&] {
    return std::all_of(ends.begin(), ends.end(), [](const auto& end) { return end->done(); }) && node_->closed() == 1;
  }));
}

TEST_P(MisbehavingClientTest, ThatIsStoppedIsWrittenToAndIsHeardOfAgainWhenItGoesOn) {
  StartNode();
  client_.Signal(SIGSTOP);
  TestSlot slot(Payload(1, kMemoryBytes), kIdentity);
  // Its memory is there all the same; its sums are not.
  const auto write = node_->Start(Kind::kWrite, 1, &slot);
  EXPECT_TRUE(Await([&] { return write->done(); }));
  EXPECT_EQ(write->status, TransferStatus::kOk);
  TestSlot cancelled(kMemoryBytes);
  TestSlot kept(kMemoryBytes);
  const auto read = node_->Start(Kind::kRead, 3, &cancelled);
  const auto later = node_->Start(Kind::kRead, 4, &kept);
  node_->channel().Cancel(3);
  EXPECT_TRUE(Await([&] { return read->done(); }));
  EXPECT_EQ(read->status, TransferStatus::kCancelled);
  client_.Signal(SIGCONT);
  EXPECT_TRUE(Await([&] { return later->done(); }));
  EXPECT_EQ(later->status, TransferStatus::kOk);
  EXPECT_EQ(node_->closed(), 0);
}

}  // namespace
}  // namespace quarry::transport::shm
