// Items of all sizes as messages of UCX: those within a message, those by rendezvous, and those
// whose sums have no room in the header.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "common/net/event_loop.h"
#include "common/transport/tcp/frame.h"
#include "common/transport/ucx/message.h"
#include "tests/unit/transport/items.h"
#include "tests/unit/transport/sockets.h"
#include "tests/unit/transport/ucx_testing.h"

namespace quarry::transport::ucx {
namespace {

class UcxItemsTest : public ::testing::Test {
 protected:
  // One chunk more than there is room for sums in the header.
  static constexpr size_t kTrailing = (kMaxMetaInHeader / sizeof(uint64_t) + 1) * kChunkBytes;

  UcxItemsTest() {
    host_ = Require(MakeUcxHost(TestUcx()));
    server_ =
        Require(MakeServerChannel("ucx", {.on_closed = [this](const absl::Status&) { ++broken_; }, .ucx = host_}));
    SocketPair pair = LocalPair();
    ClientChannelContext context{.on_closed = [this](const absl::Status&) { ++broken_; }};
    context.deadline_ns = SoonNs();
    context.ucx_stream = {pair.first.release(), &client_loop_};
    context.ucx = TestUcx();
    if (!server_->AddUcxStream(pair.second.release(), &server_loop_)) std::abort();
    client_ = Require(MakeClientChannel("ucx", std::move(context)));
  }
  ~UcxItemsTest() override {
    server_.reset();
    client_.reset();
    host_->Shutdown();
  }

  // Puts and gets it again.
  void ExpectMoves(size_t bytes, Shape shape, bool checksum) {
    SCOPED_TRACE(bytes);
    const Bytes payload = Payload(bytes, bytes);
    auto request = std::make_shared<TestRequest>();
    request->Add(shape, bytes, kIdentity, checksum);
    request->Add(shape, bytes, kIdentity, checksum);
    (*request)[1].memory.Fill(payload);
    const uint64_t id = ++requests_;
    client_->Expose(id, request);
    TestSlot from(payload, kIdentity);
    TestSlot to(bytes);
    auto write = std::make_unique<TestTransfer>(Transfer::Kind::kWrite, ItemId{id, 0}, &from);
    auto read = std::make_unique<TestTransfer>(Transfer::Kind::kRead, ItemId{id, 1}, &to);
    const TransferEndPtr ends[] = {write->end(), read->end()};
    server_->Start(std::move(write));
    server_->Start(std::move(read));
    const int64_t until = SoonNs();
    while (!(ends[0]->done() && ends[1]->done() && (*request)[0].reports() > 0 && (*request)[1].sent > 0)) {
      ASSERT_LT(Clock::Real()->NowNs(), until);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    EXPECT_EQ(ends[0]->status, TransferStatus::kOk);
    EXPECT_EQ(ends[1]->status, TransferStatus::kOk);
    EXPECT_EQ((*request)[0].arrived, 1);
    EXPECT_TRUE((*request)[0].memory.Holds(payload));
    EXPECT_TRUE((*request)[0].memory.GapsIntact());
    EXPECT_TRUE(to.Holds(payload));
    EXPECT_EQ(ends[1]->root, checksum ? from.root : 0);
    EXPECT_EQ(client_->Withdraw(id, [] {}), Release::kReleased);
    EXPECT_EQ(broken_, 0);
  }

  std::atomic<int> broken_{0};
  uint64_t requests_ = 0;
  EventLoop server_loop_{"t-server"};
  EventLoop client_loop_{"t-client"};
  std::shared_ptr<UcxHost> host_;
  std::unique_ptr<ServerChannel> server_;
  std::unique_ptr<ClientChannel> client_;
};

TEST_F(UcxItemsTest, OfEverySize) {
  for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{65'537}, size_t{128} << 10, (size_t{128} << 10) + 1,
                             size_t{2} << 20, kTrailing - kChunkBytes, kTrailing}) {
    ExpectMoves(bytes, Shape::kStrided64K, true);
    ExpectMoves(bytes, Shape::kContiguous, false);
  }
}

TEST_F(UcxItemsTest, OnlyTheLargestHaveTheirSumsBehindThem) {
  EXPECT_LE(tcp::MetaBytes(ChunkCount(kTrailing - 4 * kChunkBytes * 4)), kMaxMetaInHeader);
  EXPECT_GT(tcp::MetaBytes(ChunkCount(kTrailing)), kMaxMetaInHeader);
}

TEST_F(UcxItemsTest, AByteThatChangesOnItsWayIsFound) {
  const Bytes payload = Payload(1, 1 << 20);
  TestSlot slot(payload, kIdentity);
  slot.memory.data()[700'000] ^= std::byte{1};  // after it was summed
  auto request = std::make_shared<TestRequest>();
  request->Add(Shape::kContiguous, payload.size(), kIdentity);
  client_->Expose(1, request);
  auto write = std::make_unique<TestTransfer>(Transfer::Kind::kWrite, ItemId{1, 0}, &slot);
  server_->Start(std::move(write));
  const int64_t until = SoonNs();
  while ((*request)[0].reports() == 0) ASSERT_LT(Clock::Real()->NowNs(), until);
  EXPECT_EQ((*request)[0].failed, 1);
  EXPECT_EQ((*request)[0].failure, TransferStatus::kChecksum);
}

}  // namespace
}  // namespace quarry::transport::ucx
