// A node's end of a UCX session, and a client that says whatever a test likes.
#ifndef QUARRY_TESTS_UNIT_TRANSPORT_UCX_NODE_TEST_H_
#define QUARRY_TESTS_UNIT_TRANSPORT_UCX_NODE_TEST_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "common/net/event_loop.h"
#include "common/transport/tcp/frame.h"
#include "common/transport/ucx/greeting.h"
#include "tests/unit/transport/items.h"
#include "tests/unit/transport/sockets.h"
#include "tests/unit/transport/ucx_testing.h"

namespace quarry::transport::ucx {

class UcxNodeTest : public ::testing::Test {
 protected:
  static constexpr size_t kItemBytes = 300'000;  // by rendezvous

  explicit UcxNodeTest(const UcxOptions& options = TestUcx()) : UcxNodeTest(options, Require(MakeUcxHost(options))) {}
  // `stuck_ns`: what a client may take to take something.
  UcxNodeTest(const UcxOptions& options, std::shared_ptr<UcxHost> host, int64_t stuck_ns = 60'000'000'000)
      : stuck_ns_(stuck_ns), host_(std::move(host)), raw_(options) {
    Open();
  }
  ~UcxNodeTest() override { End(); }
  // Nothing is touched any more, on any thread.
  void End() {
    channel_.reset();
    host_->Shutdown();
    raw_.End();
  }

  void Open() {
    ServerChannelContext context;
    context.ucx = host_;
    context.ucx_stuck_ns = stuck_ns_;
    context.on_closed = [this](const absl::Status& status) {
      std::lock_guard lock(mutex_);
      why_ = std::string(status.message());
      ++closed_;
    };
    channel_ = Require(MakeServerChannel("ucx", std::move(context)));
    SocketPair pair = LocalPair();
    side_ = std::move(pair.first);
    if (!channel_->AddUcxStream(pair.second.release(), &server_loop_)) std::abort();
  }
  // Another session.
  void Again() {
    channel_.reset();
    raw_.Disconnect();
    while (raw_.Take().has_value()) continue;
    closed_ = 0;
    go_ = false;
    Open();
  }

  Greeting Introduction() {
    return {
        .token = RawEnd::kToken, .major = raw_.version().major, .minor = raw_.version().minor, .text = raw_.address()};
  }
  void Join() {
    const auto server = Greet(side_.get(), Introduction(), SoonNs());
    ASSERT_TRUE(server.ok()) << server.status();
    server_token_ = server->token;
    raw_.Connect(server->text);
  }
  TransferEndPtr Start(Transfer::Kind kind, TestSlot* slot) {
    auto transfer = std::make_unique<TestTransfer>(kind, kItem, slot);
    TransferEndPtr end = transfer->end();
    channel_->Start(std::move(transfer));
    return end;
  }
  std::string Header(MessageType type, uint32_t trailing_bytes = 0) const {
    std::string header;
    EncodeMessage({server_token_, kItem, type, trailing_bytes}, &header);
    return header;
  }
  static std::string Meta(size_t bytes, size_t payload_bytes) {
    std::string meta;
    tcp::EncodeMeta({.root = 0, .range = {0, bytes, payload_bytes}, .edge_sums = {0, 0}, .sums = {}}, &meta);
    return meta;
  }
  static bool Await(const std::function<bool()>& condition) {
    const int64_t until = SoonNs();
    while (!condition()) {
      if (Clock::Real()->NowNs() > until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }
  // The next message that the node sends.
  void AwaitMessage(MessageType type, ItemId id = kItem) {
    ASSERT_TRUE(Await([&] { return (heard_ = raw_.Take()).has_value(); }));
    ASSERT_EQ(heard_->type, type);
    ASSERT_EQ(heard_->id, id);
  }
  void AwaitPull() { AwaitMessage(MessageType::kPull); }
  // Its worker does nothing until go_.
  void HoldUpClient() {
    std::atomic<bool> held{false};
    raw_.loop().Post([&] {
      held = true;
      while (!go_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    ASSERT_TRUE(Await([&] { return held.load(); }));
  }
  // As far as it comes while the client is held up.
  void LetServerWork() {
    for (int i = 0; i < 20; ++i) {
      server_loop_.Run([] {});
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  void ExpectClosed(const std::string& why) {
    ASSERT_TRUE(Await([&] { return closed_ == 1; }));
    std::lock_guard lock(mutex_);
    EXPECT_THAT(why_, ::testing::HasSubstr(why));
  }

  static constexpr ItemId kItem{7, 3};
  const int64_t stuck_ns_;
  EventLoop server_loop_{"t-server"};
  std::mutex mutex_;
  std::string why_;  // guarded by mutex_
  std::atomic<int> closed_{0};
  std::atomic<bool> go_{false};
  std::shared_ptr<UcxHost> host_;
  RawEnd raw_;
  UniqueFd side_;
  uint64_t server_token_ = 0;
  std::optional<RawEnd::Received> heard_;
  TestSlot slot_{kItemBytes};
  std::unique_ptr<ServerChannel> channel_;
};

}  // namespace quarry::transport::ucx

#endif  // QUARRY_TESTS_UNIT_TRANSPORT_UCX_NODE_TEST_H_
