// What only the TCP channels do: streams that come and go, peers that misbehave.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>

#include <atomic>
#include <future>

#include "common/net/event_loop.h"
#include "common/transport/tcp/client_channel.h"
#include "common/transport/tcp/client_stream.h"
#include "common/transport/tcp/server_channel.h"
#include "tests/unit/transport/items.h"
#include "tests/unit/transport/sockets.h"
#include "tests/unit/transport/wire.h"

namespace quarry::transport::tcp {
namespace {

using Kind = Transfer::Kind;

bool WaitFor(const std::function<bool()>& condition) {
  const int64_t deadline = SoonNs();
  while (!condition()) {
    if (Clock::Real()->NowNs() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

// The server's end; the test plays the client on raw sockets.
class TcpServerChannelTest : public ::testing::Test {
 public:
  static constexpr uint32_t kMaxStreams = 3;

  TcpServerChannelTest() {
    channel_ = std::make_unique<TcpServerChannel>(ServerChannelContext{.on_closed =
                                                                           [this](const absl::Status& status) {
                                                                             last_status_ = status;
                                                                             ++closed_;
                                                                           },
                                                                       .max_streams = kMaxStreams});
  }
  ~TcpServerChannelTest() override {
    channel_.reset();
    loop_.reset();
  }

 protected:
  UniqueFd Join() {
    SocketPair pair = TcpPair();
    EXPECT_TRUE(channel_->AddStream(pair.second.release(), loop_.get()));
    return std::move(pair.first);
  }
  TransferEndPtr Start(Kind kind, ItemId id, TestSlot* slot) {
    auto transfer = std::make_unique<TestTransfer>(kind, id, slot);
    TransferEndPtr end = transfer->end();
    channel_->Start(std::move(transfer));
    return end;
  }
  static bool ClosedByPeer(int fd) {
    char byte;
    return ReadExactly(fd, &byte, 1, SoonNs()).code() == absl::StatusCode::kUnavailable;
  }

  std::atomic<int> closed_{0};
  absl::Status last_status_;  // to be read when closed_ says so
  std::unique_ptr<EventLoop> loop_ = std::make_unique<EventLoop>("t-server");
  std::unique_ptr<TcpServerChannel> channel_;
};

TEST_F(TcpServerChannelTest, StreamsBeyondTheLimitAreClosed) {
  std::vector<UniqueFd> clients;
  for (uint32_t i = 0; i < kMaxStreams; ++i) clients.push_back(Join());
  SocketPair pair = TcpPair();
  EXPECT_FALSE(channel_->AddStream(pair.second.release(), loop_.get()));
  EXPECT_TRUE(ClosedByPeer(pair.first.get()));
}

TEST_F(TcpServerChannelTest, NothingIsToldOfItsOwnClose) {
  std::vector<UniqueFd> clients;
  for (uint32_t i = 0; i < kMaxStreams; ++i) clients.push_back(Join());
  channel_->Close();
  for (const UniqueFd& client : clients) EXPECT_TRUE(ClosedByPeer(client.get()));
  SocketPair pair = TcpPair();
  EXPECT_FALSE(channel_->AddStream(pair.second.release(), loop_.get()));
  EXPECT_TRUE(ClosedByPeer(pair.first.get()));
  loop_->Run([] {});
  EXPECT_EQ(closed_, 0);
}

TEST_F(TcpServerChannelTest, ABreakIsToldOnceHoweverManyStreamsBreak) {
  {
    std::vector<UniqueFd> clients;
    for (uint32_t i = 0; i < kMaxStreams; ++i) clients.push_back(Join());
  }
  ASSERT_TRUE(WaitFor([&] { return closed_ > 0; }));
  channel_->Close();
  channel_.reset();
  loop_->Run([] {});
  EXPECT_EQ(closed_, 1);
}

TEST_F(TcpServerChannelTest, WithoutAStreamTransfersFinishAsClosed) {
  TestSlot slot(Payload(1, 100), kIdentity);
  const auto end = Start(Kind::kWrite, {1, 0}, &slot);
  EXPECT_EQ(end->finished, 1);
  EXPECT_EQ(end->status, TransferStatus::kClosed);
}

TEST_F(TcpServerChannelTest, AClosingThreadAndAJoiningOneDoNotDisturbEachOther) {
  for (int round = 0; round < 100; ++round) {
    TcpServerChannel channel({.on_closed = [](const absl::Status&) {}});
    SocketPair pair = TcpPair();
    std::thread closer([&] { channel.Close(); });
    channel.AddStream(pair.second.release(), loop_.get());
    closer.join();
    EXPECT_TRUE(ClosedByPeer(pair.first.get()));
  }
}

TEST_F(TcpServerChannelTest, AClientThatGoesAwayFinishesItsTransfers) {
  TestSlot slot(Payload(1, 4 << 20), kIdentity);
  TestSlot target(4 << 20);
  std::vector<TransferEndPtr> ends;
  {
    UniqueFd client = Join();
    for (uint32_t i = 0; i < 4; ++i) ends.push_back(Start(Kind::kWrite, {1, i}, &slot));
    ends.push_back(Start(Kind::kRead, {2, 0}, &target));
    char some[1000];
    ASSERT_TRUE(ReadExactly(client.get(), some, sizeof some, SoonNs()).ok());
  }
  for (const auto& end : ends) ASSERT_TRUE(WaitFor([&] { return end->done(); }));
  for (const auto& end : ends) {
    EXPECT_EQ(end->finished, 1);
    EXPECT_EQ(end->status, TransferStatus::kClosed);
  }
  ASSERT_TRUE(WaitFor([&] { return closed_ > 0; }));
}

TEST_F(TcpServerChannelTest, AClientThatDoesNotReadGetsNoMoreThanItsBuffers) {
  constexpr size_t kBytes = 1 << 20;
  constexpr size_t kMostBuffered = 12 << 20;  // both sockets' buffers, with what the kernel adds
  constexpr uint32_t kTransfers = 64;
  TestSlot slot(Payload(1, kBytes), kIdentity);
  UniqueFd client = Join();
  std::vector<TransferEndPtr> ends;
  for (uint32_t i = 0; i < kTransfers; ++i) ends.push_back(Start(Kind::kWrite, {1, i}, &slot));
  const auto finished = [&] {
    return static_cast<size_t>(std::count_if(ends.begin(), ends.end(), [](const auto& end) { return end->done(); }));
  };
  // Until the server's end can do no more: the loop has been idle and nothing changed.
  size_t before = ~size_t{0};
  while (before != finished()) {
    before = finished();
    for (int i = 0; i < 200; ++i) loop_->Run([] {});
  }
  EXPECT_LE(finished() * kBytes, kMostBuffered);
  // It costs itself only: cancelled, the transfers end, although nothing is read.
  channel_->Cancel(1);
  ASSERT_TRUE(WaitFor([&] { return finished() == kTransfers; }));
  EXPECT_EQ(closed_, 0);
}

TEST_F(TcpServerChannelTest, FramesThatOnlyAServerSendsEndTheStream) {
  UniqueFd client = Join();
  ASSERT_TRUE(WriteAll(client.get(), HeaderOf({FrameType::kPull, {1, 0}, 0, 0, 0}), SoonNs()).ok());
  EXPECT_TRUE(ClosedByPeer(client.get()));
  ASSERT_TRUE(WaitFor([&] { return closed_ == 1; }));
  EXPECT_EQ(last_status_.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(TcpServerChannelTest, UnaskedItemsAreThrownAway) {
  SocketPair pair = LocalPair();  // where what was written is there at once
  const UniqueFd client = std::move(pair.first);
  const Bytes payload = Payload(1, 1000);
  ASSERT_TRUE(WriteAll(client.get(), Joined(FramesOf({1, 0}, payload)), SoonNs()).ok());
  ASSERT_TRUE(channel_->AddStream(pair.second.release(), loop_.get()));
  for (int i = 0; i < 3; ++i) loop_->Run([] {});
  TestSlot target(payload.size());
  const auto end = Start(Kind::kRead, {1, 0}, &target);
  char pull[kHeaderBytes];
  ASSERT_TRUE(ReadExactly(client.get(), pull, sizeof pull, SoonNs()).ok());
  EXPECT_EQ(std::string(pull, sizeof pull), HeaderOf({FrameType::kPull, {1, 0}, 0, 0, 0}));
  EXPECT_FALSE(end->done());
  ASSERT_TRUE(WriteAll(client.get(), Joined(FramesOf({1, 0}, payload)), SoonNs()).ok());
  ASSERT_TRUE(WaitFor([&] { return end->done(); }));
  EXPECT_EQ(end->status, TransferStatus::kOk);
  EXPECT_TRUE(target.Holds(payload));
}

TEST_F(TcpServerChannelTest, AReadCancelledHalfWayLeavesItsSlotAlone) {
  UniqueFd client = Join();
  const Bytes payload = Payload(1, 100'000);
  TestSlot doomed(payload.size());
  TestSlot next(payload.size());
  const auto doomed_end = Start(Kind::kRead, {1, 0}, &doomed);
  const auto next_end = Start(Kind::kRead, {2, 0}, &next);
  char pulls[2 * kHeaderBytes];
  ASSERT_TRUE(ReadExactly(client.get(), pulls, sizeof pulls, SoonNs()).ok());
  doomed.memory.data()[48'000] = ~payload[48'000];
  const std::string stream = Joined(FramesOf({1, 0}, payload, 30'000));
  ASSERT_TRUE(WriteAll(client.get(), stream.substr(0, 50'000), SoonNs()).ok());
  // On the loop's thread, where the slot is written.
  ASSERT_TRUE(WaitFor([&] {
    bool landing = false;
    loop_->Run([&] { landing = doomed.memory.data()[48'000] == payload[48'000]; });
    return landing;
  }));
  channel_->Cancel(1);
  ASSERT_TRUE(WaitFor([&] { return doomed_end->done(); }));
  EXPECT_EQ(doomed_end->status, TransferStatus::kCancelled);
  doomed.memory.Lock();
  ASSERT_TRUE(WriteAll(client.get(), stream.substr(50'000) + Joined(FramesOf({2, 0}, payload)), SoonNs()).ok());
  ASSERT_TRUE(WaitFor([&] { return next_end->done(); }));
  EXPECT_EQ(next_end->status, TransferStatus::kOk);
  EXPECT_TRUE(next.Holds(payload));
  EXPECT_EQ(closed_, 0);
}

TEST_F(TcpServerChannelTest, BytesThatDoNotFitTheirSumsAreAChecksumError) {
  UniqueFd client = Join();
  const Bytes payload = Payload(1, 300'000);
  for (uint32_t i = 0; i < 3; ++i) {
    TestSlot target(payload.size());
    const auto end = Start(Kind::kRead, {1, i}, &target);
    std::string frames = Joined(FramesOf({1, i}, payload, 100'000));
    const size_t flips[] = {kHeaderBytes + kFixedMetaBytes + 3, kHeaderBytes + kFixedMetaBytes + 100,
                            frames.size() - 1};
    frames[flips[i]] = static_cast<char>(frames[flips[i]] ^ 1);  // a sum, an early byte, the last byte
    ASSERT_TRUE(WaitFor([&] {
      int bytes = 0;
      return ioctl(client.get(), FIONREAD, &bytes) == 0 && bytes >= static_cast<int>((i + 1) * kHeaderBytes);
    }));
    ASSERT_TRUE(WriteAll(client.get(), frames, SoonNs()).ok());
    ASSERT_TRUE(WaitFor([&] { return end->done(); }));
    EXPECT_EQ(end->status, TransferStatus::kChecksum);
    EXPECT_EQ(end->finished, 1);
  }
}

// The client's end; the test plays the server.
class TcpClientChannelTest : public ::testing::Test {
 public:
  ~TcpClientChannelTest() override {
    channel_.reset();
    loop_.reset();
  }

 protected:
  void Connect(int streams) {
    ClientChannelContext context;
    context.on_closed = [this](const absl::Status& status) {
      last_status_ = status;
      ++closed_;
    };
    for (int i = 0; i < streams; ++i) {
      SocketPair pair = TcpPair();
      context.streams.push_back({pair.first.release(), loop_.get()});
      servers_.push_back(std::move(pair.second));
    }
    channel_ = std::make_unique<TcpClientChannel>(std::move(context));
  }
  int server() const { return servers_[0].get(); }

  std::atomic<int> closed_{0};
  absl::Status last_status_;
  std::unique_ptr<EventLoop> loop_ = std::make_unique<EventLoop>("t-client");
  std::vector<UniqueFd> servers_;
  std::unique_ptr<TcpClientChannel> channel_;
};

TEST_F(TcpClientChannelTest, ABreakIsToldOnceAndReleasesWhatIsHeld) {
  Connect(3);
  auto request = std::make_shared<TestRequest>();
  request->Add(Shape::kContiguous, 100'000, kIdentity);
  channel_->Expose(1, request);
  const std::string frame = FramesOf({1, 0}, Payload(1, 100'000), 50'000)[0];
  ASSERT_TRUE(WriteAll(server(), frame, SoonNs()).ok());
  ASSERT_TRUE(WaitFor([&] { return request.use_count() > 2; })) << "the item never began";
  servers_.clear();
  ASSERT_TRUE(WaitFor([&] { return closed_ > 0; }));
  EXPECT_EQ(last_status_.code(), absl::StatusCode::kUnavailable);
  std::atomic<int> released{0};
  if (channel_->Withdraw(1, [&] { ++released; }) == Release::kReleased) ++released;
  ASSERT_TRUE(WaitFor([&] { return released == 1; }));
  channel_.reset();
  EXPECT_EQ(closed_, 1);
  EXPECT_EQ((*request)[0].reports(), 0);
}

TEST_F(TcpClientChannelTest, AnItemWithdrawnHalfWayIsReleasedAndTheRestDrained) {
  Connect(1);
  const Bytes payload = Payload(1, 100'000);
  auto doomed = std::make_shared<TestRequest>();
  auto next = std::make_shared<TestRequest>();
  for (const auto& request : {doomed, next}) request->Add(Shape::kStrided8K, payload.size(), /*identity_seed=*/1);
  channel_->Expose(1, doomed);
  channel_->Expose(2, next);
  const std::string stream = Joined(FramesOf({1, 0}, payload, 30'000));
  ASSERT_TRUE(WriteAll(server(), stream.substr(0, 50'000), SoonNs()).ok());
  // The table holds it anyway, the stream while it lands.
  ASSERT_TRUE(WaitFor([&] { return doomed.use_count() > 2; })) << "the item never began";
  std::promise<void> released;
  ASSERT_EQ(channel_->Withdraw(1, [&] { released.set_value(); }), Release::kHeld);
  ASSERT_EQ(released.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
  doomed->Lock();
  ASSERT_TRUE(WriteAll(server(), stream.substr(50'000) + Joined(FramesOf({2, 0}, payload)), SoonNs()).ok());
  ASSERT_TRUE(WaitFor([&] { return (*next)[0].arrived == 1; }));
  doomed->Unlock();
  EXPECT_EQ((*doomed)[0].reports(), 0);
  EXPECT_TRUE((*doomed)[0].memory.GapsIntact());
  EXPECT_TRUE((*next)[0].memory.Holds(payload));
  EXPECT_EQ(closed_, 0);
}

TEST_F(TcpClientChannelTest, FramesThatOnlyAClientSendsEndTheStream) {
  Connect(1);
  ASSERT_TRUE(WriteAll(server(), HeaderOf({FrameType::kAbort, {1, 0}, 0, 0, 0}), SoonNs()).ok());
  ASSERT_TRUE(WaitFor([&] { return closed_ == 1; }));
  EXPECT_EQ(last_status_.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(TcpClientChannelTest, WithdrawnSourcesAreAborted) {
  Connect(1);
  constexpr size_t kBytes = 8 << 20;  // more than sockets take
  auto request = std::make_shared<TestRequest>();
  for (int i = 0; i < 2; ++i) request->Add(Shape::kContiguous, kBytes, kIdentity);
  channel_->Expose(1, request);
  std::string pulls;
  for (uint32_t i = 0; i < 2; ++i) pulls += HeaderOf({FrameType::kPull, {1, i}, 0, 0, 0});
  ASSERT_TRUE(WriteAll(server(), pulls, SoonNs()).ok());
  char header[kHeaderBytes];
  ASSERT_TRUE(ReadExactly(server(), header, sizeof header, SoonNs()).ok());
  std::promise<void> released;
  ASSERT_EQ(channel_->Withdraw(1, [&] { released.set_value(); }), Release::kHeld);
  released.get_future().wait();
  request->Lock();
  // What was on its way, and then the aborts; a pull that comes late is aborted as well.
  ASSERT_TRUE(WriteAll(server(), HeaderOf({FrameType::kPull, {1, 1}, 0, 0, 0}), SoonNs()).ok());
  RecordingSink sink;
  std::string rest(header, sizeof header);
  const std::string abort0 = HeaderOf({FrameType::kAbort, {1, 0}, 0, 0, 0});
  const std::string abort1 = HeaderOf({FrameType::kAbort, {1, 1}, 0, 0, 0});
  const std::string expected_end = abort0 + abort1 + abort1;
  while (rest.size() < expected_end.size() || rest.substr(rest.size() - expected_end.size()) != expected_end) {
    char byte;
    ASSERT_TRUE(ReadExactly(server(), &byte, 1, SoonNs()).ok()) << "the aborts never came";
    rest.push_back(byte);
    ASSERT_LT(rest.size(), kBytes);
  }
  EXPECT_EQ(closed_, 0);
  request->Unlock();
}

TEST_F(TcpClientChannelTest, AServerThatPullsWithoutReadingIsCutOff) {
  Connect(1);
  auto request = std::make_shared<TestRequest>();
  request->Add(Shape::kContiguous, 100, kIdentity);
  channel_->Expose(1, request);
  std::string pulls;
  for (int i = 0; i < 1000; ++i) pulls += HeaderOf({FrameType::kPull, {1, 0}, 0, 0, 0});
  size_t sent = 0;
  while (closed_ == 0 && sent < 4 * ClientStream::kMaxQueued) {
    if (!WriteAll(server(), pulls, SoonNs()).ok()) break;
    sent += 1000;
  }
  ASSERT_TRUE(WaitFor([&] { return closed_ == 1; }));
  EXPECT_EQ(last_status_.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(channel_->Withdraw(1, [] {}), Release::kReleased);
}

}  // namespace
}  // namespace quarry::transport::tcp
