// A client whose node moves items by RMA: what is the node's to touch is held, and nothing is touched
// any more that was given back. The node is a raw end; UCX's software does the RMA.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/net/event_loop.h"
#include "common/transport/tcp/frame.h"
#include "common/transport/ucx/greeting.h"
#include "tests/unit/transport/items.h"
#include "tests/unit/transport/sockets.h"
#include "tests/unit/transport/ucx_testing.h"

namespace quarry::transport::ucx {
namespace {

using ::testing::HasSubstr;
using Rma = UcxOptions::Rma;
using std::chrono::milliseconds;

class UcxRmaClientTest : public ::testing::Test {
 protected:
  static constexpr size_t kItemBytes = 300'000;
  static constexpr ItemId kItem{7, 0};

  UcxRmaClientTest() {
    SocketPair pair = LocalPair();
    node_side_ = std::move(pair.second);
    std::thread node([this] { Greet(/*rma=*/true); });
    ClientChannelContext context;
    context.on_closed = [this](const absl::Status& status) {
      std::lock_guard lock(mutex_);
      why_ = std::string(status.message());
      ++closed_;
    };
    context.deadline_ns = SoonNs();
    context.ucx_stream = {pair.first.release(), &client_loop_};
    context.ucx = TestUcx(Rma::kAlways);
    channel_ = Require(MakeClientChannel("ucx", std::move(context)));
    node.join();
    request_->Add(Shape::kStrided8K, kItemBytes, kIdentity);
  }

  // As the node that the client dials.
  void Greet(bool rma) {
    std::string in(kGreetingPrefixBytes, '\0');
    if (!ReadExactly(node_side_.get(), in.data(), in.size(), SoonNs()).ok()) std::abort();
    const size_t bytes = Require(GreetingBytes(in));
    in.resize(bytes);
    if (!ReadExactly(node_side_.get(), &in[kGreetingPrefixBytes], bytes - kGreetingPrefixBytes, SoonNs()).ok()) {
      std::abort();
    }
    const Greeting client = Require(DecodeGreeting(in));
    if (!client.rma) std::abort();
    client_token_ = client.token;
    raw_.Connect(client.text);
    const Greeting mine{.token = RawEnd::kToken,
                        .major = raw_.version().major,
                        .minor = raw_.version().minor,
                        .rma = rma,
                        .text = raw_.address()};
    if (!WriteAll(node_side_.get(), EncodeGreeting(mine), SoonNs()).ok()) std::abort();
  }

  void Say(MessageType type, ItemId id = kItem, const std::string& rest = "") {
    std::string header;
    EncodeMessage({.token = client_token_, .id = id, .type = type}, &header);
    raw_.Send(header + rest);
  }
  void AwaitMessage(MessageType type) {
    ASSERT_TRUE(Await([&] { return (heard_ = raw_.Take()).has_value(); }));
    ASSERT_EQ(heard_->type, type);
  }
  static bool Await(const std::function<bool()>& condition) {
    const int64_t until = SoonNs();
    while (!condition()) {
      if (Clock::Real()->NowNs() > until) return false;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return true;
  }
  void ExpectClosed(const std::string& why) {
    ASSERT_TRUE(Await([&] { return closed_ == 1; }));
    std::lock_guard lock(mutex_);
    EXPECT_THAT(why_, HasSubstr(why));
  }
  MemoryRange Range() {
    GuardedMemory& memory = (*request_)[0].memory.memory();
    return {memory.data(), memory.size()};
  }
  // The node takes the region; claim_ is what it was told.
  void Register() {
    auto registered = std::async(std::launch::async, [this] { return channel_->RegisterMemory(Range()); });
    AwaitMessage(MessageType::kRegion);
    const absl::string_view rest = heard_->rest;
    ASSERT_TRUE(DecodeRegionClaim({reinterpret_cast<const std::byte*>(rest.data()), rest.size()}, &claim_).ok());
    Say(MessageType::kRegionReply, heard_->id);
    ASSERT_TRUE(registered.get().ok());
  }
  // The node has the item's place, and so the item.
  void HandOver(MessageType asked = MessageType::kOffer) {
    Register();
    channel_->Expose(kItem.request, request_);
    Say(asked);
    AwaitMessage(MessageType::kPlace);
  }
  // Into the item, as whoever has its key may.
  std::shared_ptr<std::atomic<int>> Write() { return raw_.Put(claim_, 0, Payload(3, 8 << 10)); }
  bool Written() {
    client_loop_.Run([] {});  // where UCX writes
    const Bytes piece = Payload(3, 8 << 10);
    return std::equal(piece.begin(), piece.end(), Range().base);
  }

  EventLoop client_loop_{"t-client"};
  std::mutex mutex_;
  std::string why_;  // guarded by mutex_
  std::atomic<int> closed_{0};
  RawEnd raw_{TestUcx(Rma::kAlways)};
  UniqueFd node_side_;
  uint64_t client_token_ = 0;
  RegionClaim claim_;
  std::optional<RawEnd::Received> heard_;
  std::shared_ptr<TestRequest> request_ = std::make_shared<TestRequest>();
  std::unique_ptr<ClientChannel> channel_;
};

TEST_F(UcxRmaClientTest, WhatWasPlacedIsHeldUntilTheNodeReleasesIt) {
  for (const MessageType asked : {MessageType::kOffer, MessageType::kPull}) {
    HandOver(asked);
    std::atomic<int> released{0};
    EXPECT_EQ(channel_->Withdraw(kItem.request, [&] { ++released; }), Release::kHeld);
    std::this_thread::sleep_for(milliseconds(30));
    EXPECT_EQ(released, 0);
    Say(MessageType::kReleased);
    EXPECT_TRUE(Await([&] { return released == 1; }));
    EXPECT_EQ(closed_, 0);
    EXPECT_EQ((*request_)[0].sent, asked == MessageType::kPull ? 1 : 0);
    channel_->UnregisterMemory(Range());
    AwaitMessage(MessageType::kUnregion);
  }
}

TEST_F(UcxRmaClientTest, WhatTheNodeSaysIsWrittenIsVerified) {
  HandOver();
  std::string meta;
  const TestSlot slot(Payload(4, kItemBytes), kIdentity);  // other bytes are there
  tcp::EncodeMeta({.root = slot.root, .range = {0, kItemBytes, kItemBytes}, .edge_sums = {0, 0}, .sums = slot.sums},
                  &meta);
  Say(MessageType::kWritten, kItem, meta);
  ASSERT_TRUE(Await([&] { return (*request_)[0].failed == 1; }));
  EXPECT_EQ((*request_)[0].failure, TransferStatus::kChecksum);
  EXPECT_EQ(channel_->Withdraw(kItem.request, [] {}), Release::kReleased);
}

TEST_F(UcxRmaClientTest, MemoryIsTakenBackWhenTheNodeHasReleasedIt) {
  HandOver();
  auto unregistered = std::async(std::launch::async, [this] { channel_->UnregisterMemory(Range()); });
  EXPECT_EQ(unregistered.wait_for(milliseconds(100)), std::future_status::timeout);
  Say(MessageType::kReleased);
  unregistered.get();
  AwaitMessage(MessageType::kUnregion);
  EXPECT_EQ(closed_, 0);
}

TEST_F(UcxRmaClientTest, MemoryIsTakenBackFromANodeThatDoesNotReleaseIt) {
  HandOver();
  ASSERT_TRUE(Await([status = Write()] { return *status != UCS_INPROGRESS; }));
  ASSERT_TRUE(Written());
  std::fill_n(Range().base, 8 << 10, std::byte{0});
  channel_->UnregisterMemory(Range());
  ExpectClosed("memory was taken back");
  EXPECT_EQ(channel_->Withdraw(kItem.request, [] {}), Release::kReleased);
  Write();
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_FALSE(Written());
}

TEST_F(UcxRmaClientTest, NothingIsWrittenToWhatWasPlacedOnceTheChannelHasEnded) {
  HandOver();
  std::atomic<int> released{0};
  EXPECT_EQ(channel_->Withdraw(kItem.request, [&] { ++released; }), Release::kHeld);
  channel_.reset();
  EXPECT_EQ(released, 1);
  (*request_).Lock();  // whoever writes to it now ends the process
  Write();
  std::this_thread::sleep_for(milliseconds(100));
  (*request_).Unlock();
}

TEST_F(UcxRmaClientTest, TheEndOfTheNodeReleasesWhatWasPlaced) {
  HandOver();
  std::atomic<int> released{0};
  EXPECT_EQ(channel_->Withdraw(kItem.request, [&] { ++released; }), Release::kHeld);
  node_side_ = UniqueFd();
  EXPECT_TRUE(Await([&] { return released == 1; }));
  ExpectClosed("closed the connection");
  EXPECT_TRUE(absl::IsUnavailable(channel_->RegisterMemory(Range())));
}

TEST_F(UcxRmaClientTest, WhatIsNotRegisteredIsElsewhere) {
  channel_->Expose(kItem.request, request_);
  Say(MessageType::kOffer);
  AwaitMessage(MessageType::kElsewhere);
  Say(MessageType::kPull);
  AwaitMessage(MessageType::kData);
}

TEST_F(UcxRmaClientTest, WhatIsOnlyPartlyRegisteredIsElsewhere) {
  const MemoryRange all = Range();
  auto registered = std::async(std::launch::async, [&] { return channel_->RegisterMemory({all.base, all.bytes - 1}); });
  AwaitMessage(MessageType::kRegion);
  Say(MessageType::kRegionReply, heard_->id);
  ASSERT_TRUE(registered.get().ok());
  channel_->Expose(kItem.request, request_);
  Say(MessageType::kOffer);
  AwaitMessage(MessageType::kElsewhere);
}

TEST_F(UcxRmaClientTest, WhatWasWithdrawnIsNotPlaced) {
  Register();
  Say(MessageType::kOffer);
  AwaitMessage(MessageType::kAbort);
}

TEST_F(UcxRmaClientTest, ARefusedRegionIsAnErrorWithTheNodesReason) {
  auto registered = std::async(std::launch::async, [this] { return channel_->RegisterMemory(Range()); });
  AwaitMessage(MessageType::kRegion);
  Say(MessageType::kRegionReply, heard_->id, "no more room");
  EXPECT_THAT(std::string(registered.get().message()), HasSubstr("no more room"));
  AwaitMessage(MessageType::kUnregion);
  channel_->Expose(kItem.request, request_);
  Say(MessageType::kOffer);
  AwaitMessage(MessageType::kElsewhere);
}

TEST_F(UcxRmaClientTest, ReleasingWhatTheNodeDoesNotHaveEndsTheSession) {
  channel_->Expose(kItem.request, request_);
  Say(MessageType::kReleased);
  ExpectClosed("releases what it does not have");
}

TEST_F(UcxRmaClientTest, WritingWhatTheNodeDoesNotHaveEndsTheSession) {
  channel_->Expose(kItem.request, request_);
  Say(MessageType::kWritten);
  ExpectClosed("written what was not there to be written");
}

TEST_F(UcxRmaClientTest, WritingToAPutEndsTheSession) {
  HandOver(MessageType::kPull);
  Say(MessageType::kWritten);
  ExpectClosed("written what was not there to be written");
}

TEST_F(UcxRmaClientTest, AnItemThatTheRequestDoesNotHaveEndsTheSession) {
  channel_->Expose(kItem.request, request_);
  Say(MessageType::kOffer, {kItem.request, 1});
  ExpectClosed("an offer of an item that the request does not have");
}

TEST_F(UcxRmaClientTest, AnItemInMorePiecesThanRmaTakesIsElsewhere) {
  class Shredded : public ExposedRequest {
   public:
    Shredded(std::byte* base, size_t pieces) : segment_{base, 1, 2, pieces} {
      item_ = {absl::MakeConstSpan(&segment_, 1), pieces, true, 0};
    }
    const Item* item(uint32_t index) const override { return index == 0 ? &item_ : nullptr; }
    void OnItemArrived(uint32_t, size_t) override {}
    void OnItemSent(uint32_t) override {}
    void OnItemFailed(uint32_t, TransferStatus) override {}

   private:
    Segment segment_;
    Item item_;
  };
  Register();
  uint64_t id = 0;
  for (const auto& [more, answer] : {std::pair(0, MessageType::kPlace), std::pair(1, MessageType::kElsewhere)}) {
    channel_->Expose(++id, std::make_shared<Shredded>(Range().base, kMaxPlacePieces + more));
    Say(MessageType::kOffer, {id, 0});
    AwaitMessage(answer);
  }
}

}  // namespace
}  // namespace quarry::transport::ucx
