// What a node believes of a client that says whatever it likes over UCX: nothing. What is wrong
// ends that client's session, with the reason, and no byte of a slot changes.
#include <algorithm>
#include <vector>

#include "tests/unit/transport/ucx_node_test.h"

namespace quarry::transport::ucx {
namespace {

using ::testing::HasSubstr;

class UcxTrustTest : public UcxNodeTest {};

TEST_F(UcxTrustTest, AGreetingOfAnImpossibleLengthEndsTheSession) {
  const char greeting[kGreetingFixedBytes] = {'\xff', '\xff', '\xff', '\xff'};
  ASSERT_TRUE(WriteAll(side_.get(), {greeting, sizeof greeting}, SoonNs()).ok());
  ExpectClosed("greeting of 4294967295 bytes, must be 32 to 8192");
}

TEST_F(UcxTrustTest, AGreetingOfNoKindEndsTheSession) {
  Greeting greeting = Introduction();
  greeting.kind = static_cast<Greeting::Kind>(9);
  ASSERT_TRUE(WriteAll(side_.get(), EncodeGreeting(greeting), SoonNs()).ok());
  ExpectClosed("greeting kind: 1 or 2, got 9");
}

TEST_F(UcxTrustTest, AnotherVersionIsRefusedByNamingBothAndCostsNothing) {
  Greeting greeting = Introduction();
  greeting.minor += 5;
  const auto server = Greet(side_.get(), greeting, SoonNs());
  EXPECT_TRUE(absl::IsFailedPrecondition(server.status())) << server.status();
  EXPECT_THAT(std::string(server.status().message()),
              HasSubstr(absl::StrCat("UCX ", raw_.version().major, ".", raw_.version().minor, " at one end and ",
                                     greeting.major, ".", greeting.minor, " at the other")));
  EXPECT_EQ(closed_, 0);
  EXPECT_STRNE(channel_->transport_name(), "ucx");
}

TEST_F(UcxTrustTest, MoreThanAGreetingEndsTheSession) {
  Join();
  ASSERT_TRUE(WriteAll(side_.get(), "more", SoonNs()).ok());
  ExpectClosed("more was sent than a greeting");
}

TEST_F(UcxTrustTest, TheEndOfTheConnectionEndsTheSession) {
  Join();
  const TransferEndPtr end = Start(Transfer::Kind::kRead, &slot_);
  AwaitPull();
  side_ = UniqueFd();
  ExpectClosed("closed the connection");
  ASSERT_TRUE(Await([&] { return end->done(); }));
  EXPECT_EQ(end->status, TransferStatus::kClosed);
}

TEST_F(UcxTrustTest, WhatBearsAnotherTokenIsNobodys) {
  Join();
  const TransferEndPtr end = Start(Transfer::Kind::kRead, &slot_);
  AwaitPull();
  std::string header = Header(MessageType::kAbort);
  header[0] = static_cast<char>(header[0] ^ 1);
  raw_.Send(header);
  raw_.Send("short");
  raw_.Send(Header(MessageType::kAbort));
  ASSERT_TRUE(Await([&] { return end->done(); }));
  EXPECT_EQ(end->status, TransferStatus::kCancelled);
  EXPECT_EQ(closed_, 0);
}

TEST_F(UcxTrustTest, AMessageOfNoTypeEndsTheSession) {
  Join();
  raw_.Send(Header(static_cast<MessageType>(12)));
  ExpectClosed("type: 1 to 11, got 12");
}

TEST_F(UcxTrustTest, APullEndsTheSession) {
  Join();
  raw_.Send(Header(MessageType::kPull));
  ExpectClosed("type: a client sent 2");
}

TEST_F(UcxTrustTest, DataThatNobodyAskedForIsDropped) {
  Join();
  std::string header;
  EncodeMessage({server_token_, {kItem.request, kItem.item + 1}, MessageType::kData, 0}, &header);
  raw_.Send(header + Meta(kItemBytes, kItemBytes), std::vector<std::byte>(kItemBytes));
  const TransferEndPtr end = Start(Transfer::Kind::kRead, &slot_);
  AwaitPull();
  raw_.Send(Header(MessageType::kAbort));
  ASSERT_TRUE(Await([&] { return end->done(); }));
  EXPECT_EQ(end->status, TransferStatus::kCancelled);
}

TEST_F(UcxTrustTest, DataOfAnotherSizeIsNotTaken) {
  for (const size_t bytes : {kItemBytes - 1, kItemBytes + 1, size_t{0}}) {
    if (server_token_ == 0) Join();
    std::fill_n(slot_.memory.data(), kItemBytes, std::byte{0x5A});
    const TransferEndPtr end = Start(Transfer::Kind::kRead, &slot_);
    AwaitPull();
    raw_.Send(Header(MessageType::kData) + Meta(kItemBytes, kItemBytes), std::vector<std::byte>(bytes));
    ASSERT_TRUE(Await([&] { return end->done(); }));
    EXPECT_EQ(end->status, TransferStatus::kWrongSize);
    EXPECT_TRUE(slot_.Holds(Bytes(kItemBytes, std::byte{0x5A})));
  }
  EXPECT_EQ(closed_, 0);
}

TEST_F(UcxTrustTest, DataWithoutMetadataEndsTheSession) {
  Join();
  const TransferEndPtr end = Start(Transfer::Kind::kRead, &slot_);
  AwaitPull();
  raw_.Send(Header(MessageType::kData), std::vector<std::byte>(kItemBytes));
  ASSERT_TRUE(Await([&] { return end->done(); }));
  EXPECT_EQ(end->status, TransferStatus::kClosed);
  ExpectClosed("meta_bytes is 0");
}

TEST_F(UcxTrustTest, MetadataOfAnotherRangeEndsTheSession) {
  Join();
  const TransferEndPtr end = Start(Transfer::Kind::kRead, &slot_);
  AwaitPull();
  raw_.Send(Header(MessageType::kData) + Meta(kItemBytes - 1, kItemBytes), std::vector<std::byte>(kItemBytes));
  ASSERT_TRUE(Await([&] { return end->done(); }));
  EXPECT_EQ(end->status, TransferStatus::kClosed);
  ExpectClosed("range_bytes is 299999");
}

TEST_F(UcxTrustTest, APartOfAPayloadIsNoPut) {
  Join();
  const TransferEndPtr end = Start(Transfer::Kind::kRead, &slot_);
  AwaitPull();
  raw_.Send(Header(MessageType::kData) + Meta(kItemBytes, 2 * kItemBytes), std::vector<std::byte>(kItemBytes));
  ASSERT_TRUE(Await([&] { return end->done(); }));
  EXPECT_EQ(end->status, TransferStatus::kWrongSize);
}

TEST_F(UcxTrustTest, MoreTrailingBytesThanMetadataHasEndsTheSession) {
  Join();
  raw_.Send(Header(MessageType::kData, tcp::kMaxMetaBytes + 1));
  ExpectClosed(absl::StrCat("trailing_bytes: at most ", tcp::kMaxMetaBytes));
}

// Whether its rendezvous has begun by then or not; nothing more comes.
TEST_F(UcxTrustTest, AClientThatGoesAwayInTheMidstOfAPutGivesTheSlotBack) {
  Join();
  TestSlot large(32 << 20);
  const TransferEndPtr end = Start(Transfer::Kind::kRead, &large);
  AwaitPull();
  raw_.Send(Header(MessageType::kData) + Meta(large.memory.size(), large.memory.size()),
            std::vector<std::byte>(large.memory.size(), std::byte{1}));
  HoldUpClient();
  LetServerWork();
  side_ = UniqueFd();
  ExpectClosed("closed the connection");
  const bool ended = Await([&] { return end->done(); });
  go_ = true;
  ASSERT_TRUE(ended) << "UCX keeps the slot of a closed endpoint";
}

class UcxStuckTest : public UcxNodeTest {
 protected:
  static constexpr int64_t kStuckNs = 300'000'000;

  UcxStuckTest() : UcxNodeTest(TestUcx(), Require(MakeUcxHost(TestUcx())), kStuckNs) {}
};

TEST_F(UcxStuckTest, AClientThatTakesNothingLosesItsSessionAndTheSlotIsBackWhenItGoesOn) {
  Join();
  HoldUpClient();
  TestSlot large(48 << 20);  // more than lies on the way
  const TransferEndPtr end = Start(Transfer::Kind::kWrite, &large);
  channel_->Cancel(kItem.request);  // what is on its way cannot be called back
  ExpectClosed("has taken nothing of what was on its way for 300ms");
  EXPECT_FALSE(end->done());
  go_ = true;
  EXPECT_TRUE(Await([&] { return end->done(); }));
}

TEST_F(UcxStuckTest, AClientThatTakesALittleNowAndThenKeepsItsSession) {
  Join();
  for (int i = 0; i < 4; ++i) {
    const TransferEndPtr end = Start(Transfer::Kind::kWrite, &slot_);
    ASSERT_TRUE(Await([&] { return end->done(); }));
    std::this_thread::sleep_for(std::chrono::nanoseconds(kStuckNs / 2));
  }
  EXPECT_EQ(closed_, 0);
}

}  // namespace
}  // namespace quarry::transport::ucx
