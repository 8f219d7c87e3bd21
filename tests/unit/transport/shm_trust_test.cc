// What a node believes of a client that says whatever it likes: nothing. Bad claims are refused
// with a reason, bad descriptions end that client's session, and no byte of a slot changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>

#include "common/net/event_loop.h"
#include "common/transport/shm/server_channel.h"
#include "tests/unit/transport/items.h"
#include "tests/unit/transport/shm_peers.h"
#include "tests/unit/transport/sockets.h"

namespace quarry::transport::shm {
namespace {

using ::testing::HasSubstr;
using Kind = Transfer::Kind;

constexpr size_t kBytes = 100'000;

class ShmTrustTest : public ::testing::Test {
 protected:
  ShmTrustTest() : channel_(std::make_unique<ShmServerChannel>(Context())) {
    SocketPair pair = LocalPair();
    client_ = std::make_unique<RawEnd>(std::move(pair.first));
    if (!channel_->AddSharedStream(pair.second.release(), &loop_, /*first=*/true)) std::abort();
    if (!client_->Receive(&message_) || message_.type != MessageType::kChallenge) std::abort();
    nonce_ = std::string(message_.body);
  }
  ~ShmTrustTest() override { channel_.reset(); }

  ServerChannelContext Context() {
    closing_ = std::make_shared<Closing>();
    return {.on_closed = [closing = closing_](const absl::Status& status) {
      closing->why = std::string(status.message());
      ++closing->times;
    }};
  }
  // Shows a proper board.
  void Join() {
    board_ = *ClientBoard::Create();
    client_->Send({.type = MessageType::kBoard, .values = {reinterpret_cast<uint64_t>(nonce_.data()), 0, 0}},
                  BoardFds());
    ASSERT_TRUE(client_->Receive(&message_));
    ASSERT_EQ(message_.type, MessageType::kReady);
    ASSERT_EQ(message_.flag, 1) << message_.body;
  }
  std::vector<UniqueFd> BoardFds() {
    std::vector<UniqueFd> fds;
    fds.push_back(Duplicate(board_->gates_fd()));
    fds.push_back(Duplicate(board_->items_fd()));
    return fds;
  }
  // What the node answers to a claim: empty when it takes it.
  std::string Claim(uint32_t key, RegionKind kind, uint64_t base, uint64_t bytes, uint64_t offset, UniqueFd fd) {
    std::vector<UniqueFd> fds;
    if (fd) fds.push_back(std::move(fd));
    board_->region_gate(key).Open(key);
    client_->Send({.type = MessageType::kRegion,
                   .flag = static_cast<uint8_t>(kind),
                   .id = {0, key},
                   .values = {base, bytes, offset}},
                  fds);
    if (!client_->Receive(&message_) || message_.type != MessageType::kRegionReply) return "no reply";
    return message_.flag == 1 ? "" : std::string(message_.body);
  }
  TransferEndPtr Start(Kind kind, uint64_t request, TestSlot* slot) {
    auto transfer = std::make_unique<TestTransfer>(kind, ItemId{request, 0}, slot);
    TransferEndPtr end = transfer->end();
    channel_->Start(std::move(transfer));
    return end;
  }
  static void Await(const std::function<bool()>& condition) {
    for (int i = 0; i < 60'000 && !condition(); ++i) usleep(1000);
    ASSERT_TRUE(condition());
  }
  void ExpectClosed() {
    Await([this] { return closing_->times > 0; });
    EXPECT_EQ(closing_->times, 1);
    while (client_->Receive(&message_)) {
    }
  }

  EventLoop loop_{"t-server"};
  // Of one session: an earlier one may still be closing.
  struct Closing {
    std::atomic<int> times{0};
    std::string why;  // once it has been
  };
  std::shared_ptr<Closing> closing_;
  std::unique_ptr<ShmServerChannel> channel_;
  std::unique_ptr<RawEnd> client_;
  std::unique_ptr<ClientBoard> board_;
  std::string nonce_;
  Message message_;
};

TEST_F(ShmTrustTest, NonsenseEndsTheSession) {
  client_->SendBytes(std::string(kHeaderBytes, '\xFF'));
  ExpectClosed();
  EXPECT_THAT(closing_->why, HasSubstr("type"));
}

TEST_F(ShmTrustTest, WhatOnlyAServerSaysEndsTheSession) {
  client_->Send({.type = MessageType::kWritten});
  ExpectClosed();
}

TEST_F(ShmTrustTest, DescriptorsThatNothingIsSaidAboutEndTheSession) {
  std::vector<UniqueFd> fds;
  for (int i = 0; i < 4; ++i) fds.push_back(Memfd(1, false, false));
  for (int i = 0; i < 3; ++i) client_->Send({.type = MessageType::kAbsent}, fds);
  ExpectClosed();
}

TEST_F(ShmTrustTest, ABoardMustBeOne) {
  const auto with = [this](UniqueFd gates, UniqueFd items) {
    SocketPair pair = LocalPair();
    RawEnd client(std::move(pair.first));
    channel_ = std::make_unique<ShmServerChannel>(Context());
    EXPECT_TRUE(channel_->AddSharedStream(pair.second.release(), &loop_, true));
    EXPECT_TRUE(client.Receive(&message_));
    std::vector<UniqueFd> fds;
    fds.push_back(std::move(gates));
    fds.push_back(std::move(items));
    client.Send({.type = MessageType::kBoard}, fds);
    EXPECT_FALSE(client.Receive(&message_));
    Await([this] { return closing_->times > 0; });
    return closing_->why;
  };
  const size_t right = 4096 * ((sizeof(Gates) + 4095) / 4096);
  EXPECT_THAT(with(Memfd(right, false, true), Memfd(1, false, false)), HasSubstr("gates"));
  EXPECT_THAT(with(Memfd(right, true, false), Memfd(1, false, false)), HasSubstr("gates"));
  EXPECT_THAT(with(Memfd(right - 4096, true, true), Memfd(1, false, false)), HasSubstr("gates"));
  SocketPair other = LocalPair();
  EXPECT_THAT(with(Memfd(right, true, true), std::move(other.first)), HasSubstr("items"));
}

TEST_F(ShmTrustTest, WhoCannotShowTheNonceIsNotReached) {
  board_ = *ClientBoard::Create();
  const std::string other(kNonceBytes, 'x');
  client_->Send({.type = MessageType::kBoard, .values = {reinterpret_cast<uint64_t>(other.data()), 0, 0}}, BoardFds());
  ASSERT_TRUE(client_->Receive(&message_));
  EXPECT_EQ(message_.type, MessageType::kReady);
  EXPECT_EQ(message_.flag, 0);
  EXPECT_THAT(std::string(message_.body), HasSubstr("not the one that speaks"));
  EXPECT_THAT(Claim(1, RegionKind::kProcess, 4096, 4096, 0, UniqueFd()), HasSubstr("cannot be reached"));
}

TEST_F(ShmTrustTest, BadClaimsAreRefusedWithAReason) {
  Join();
  const auto mapped = [this](uint32_t key, UniqueFd fd, uint64_t bytes, uint64_t offset = 0) {
    return Claim(key, RegionKind::kMapped, 4096, bytes, offset, std::move(fd));
  };
  EXPECT_EQ(mapped(1, Memfd(8192, true, true), 8192), "");
  EXPECT_THAT(mapped(1, Memfd(8192, true, true), 8192), HasSubstr("slot"));
  EXPECT_THAT(mapped(2, Memfd(8192, false, true), 8192), HasSubstr("seal"));
  EXPECT_THAT(mapped(3, Memfd(8192, true, false), 8192), HasSubstr("holes"));
  EXPECT_THAT(mapped(4, Memfd(8192, true, true), 8193), HasSubstr("end"));
  EXPECT_THAT(mapped(5, Memfd(8192, true, true), 4097, 4096), HasSubstr("end"));
  EXPECT_THAT(mapped(6, Memfd(8192, true, true), 0), HasSubstr("empty"));
  EXPECT_THAT(mapped(7, Memfd(8192, true, true), ~uint64_t{0}), HasSubstr("empty"));
  EXPECT_THAT(mapped(8, Memfd(8192, true, true), 8192, ~uint64_t{0} - 4), HasSubstr("empty"));
  SocketPair other = LocalPair();
  EXPECT_THAT(mapped(9, std::move(other.first), 8192), HasSubstr("no file in memory"));
  char on_disk[] = "/var/tmp/quarry-test-XXXXXX";
  UniqueFd disk(mkstemp(on_disk));
  ASSERT_EQ(ftruncate(disk.get(), 8192), 0);
  EXPECT_THAT(Claim(10, RegionKind::kFile, 4096, 8192, 0, std::move(disk)), HasSubstr("no file in memory"));
  unlink(on_disk);
  EXPECT_THAT(Claim(11, RegionKind::kFile, 4096, 8192, 0, Memfd(8192, false, false)), HasSubstr("holes"));
  EXPECT_EQ(Claim(12, RegionKind::kFile, 4096, 8192, 0, Memfd(8192, false, true)), "");
  EXPECT_THAT(Claim(13, static_cast<RegionKind>(9), 4096, 8192, 0, Memfd(8192, false, true)), HasSubstr("kind"));
  EXPECT_EQ(closing_->times, 0);
}

TEST_F(ShmTrustTest, WhatASessionRegistersIsBounded) {
  Join();
  const auto process = [this](uint32_t key, uint64_t bytes) {
    return Claim(key, RegionKind::kProcess, 4096, bytes, 0, UniqueFd());
  };
  EXPECT_EQ(process(1, kMaxRegisteredBytes - 8192), "");
  // What is refused counts for nothing.
  EXPECT_THAT(Claim(2, RegionKind::kMapped, 4096, 8192, 0, Memfd(8192, false, true)), HasSubstr("seal"));
  EXPECT_THAT(process(1, 8192), HasSubstr("slot"));
  EXPECT_THAT(process(3, 8193), HasSubstr("at most " + std::to_string(kMaxRegisteredBytes)));
  EXPECT_EQ(process(4, 8192), "");
  EXPECT_THAT(process(5, 1), HasSubstr("at most " + std::to_string(kMaxRegisteredBytes)));
  client_->Send({.type = MessageType::kUnregion, .id = {0, 4}});
  EXPECT_EQ(process(6, 8192), "");
  EXPECT_EQ(closing_->times, 0);
}

struct BadDescription {
  const char* what;
  ItemRecord record;
  std::vector<Descriptor> descriptors;
  bool closes = true;
};

TEST_F(ShmTrustTest, BadDescriptionsMoveNothing) {
  constexpr uint64_t kHuge = ~uint64_t{0};
  const auto item = [](uint32_t descriptors) { return ItemRecord{.bytes = kBytes, .descriptors = descriptors}; };
  const BadDescription cases[] = {
      {"no descriptors", item(0), {}},
      {"more descriptors than bytes", item(kBytes + 1), {}},
      {"more descriptors than any item may have", item(2 << 20), {}},
      {"too few bytes", item(2), {{1, 1, 0, 10, 0}, {1, 1, 0, 10, 0}}},
      {"too many bytes", item(2), {{1, 1, 0, kBytes, 0}, {1, 1, 0, 1, 0}}},
      {"a length that overflows", item(2), {{1, 2, 0, kHuge, 0}, {1, 1, 0, 10, 0}}},
      {"an offset that overflows", item(2), {{1, 1, kHuge, kBytes - 10, 0}, {1, 1, 0, 10, 0}}},
      {"a stride that overflows", item(2), {{1, 3, 0, 100, kHuge / 2}, {1, 1, 0, kBytes - 300, 0}}},
      {"an empty piece", item(2), {{1, 1, 0, kBytes, 0}, {1, 1, 0, 0, 0}}},
      {"a count of none", item(2), {{1, 1, 0, kBytes, 0}, {1, 0, 0, 1, 0}}},
      {"beyond the region's end", item(2), {{1, 1, 11, kBytes - 10, 0}, {1, 1, 0, 10, 0}}},
      {"pieces beyond the region's end", item(2), {{1, 2, 0, kBytes / 2 - 5, kBytes}, {1, 1, 0, 10, 0}}},
      {"a region that is not registered", item(2), {{7, 1, 0, kBytes, 0}, {1, 1, 0, 10, 0}}, false},
  };
  for (const BadDescription& bad : cases) {
    for (const Kind kind : {Kind::kWrite, Kind::kRead}) {
      SCOPED_TRACE(bad.what);
      // A session of its own.
      SocketPair pair = LocalPair();
      client_ = std::make_unique<RawEnd>(std::move(pair.first));
      channel_ = std::make_unique<ShmServerChannel>(Context());
      ASSERT_TRUE(channel_->AddSharedStream(pair.second.release(), &loop_, true));
      ASSERT_TRUE(client_->Receive(&message_));
      nonce_ = std::string(message_.body);
      Join();
      UniqueFd file = Memfd(kBytes, true, true);
      ASSERT_EQ(Claim(1, RegionKind::kMapped, 4096, kBytes, 0, Duplicate(file.get())), "");
      ASSERT_TRUE(board_->Expose(1, {bad.record}, bad.descriptors).has_value());
      const Bytes payload = Payload(1, kBytes);
      TestSlot slot(payload, kIdentity);
      const auto end = Start(kind, 1, &slot);
      Await([&] { return end->done(); });
      EXPECT_EQ(end->finished, 1);
      EXPECT_NE(end->status, TransferStatus::kOk);
      if (bad.closes) ExpectClosed();
      EXPECT_EQ(closing_->times, bad.closes ? 1 : 0);
      EXPECT_TRUE(slot.Holds(payload));
      std::vector<char> bytes(kBytes);
      ASSERT_EQ(pread(file.get(), bytes.data(), kBytes, 0), static_cast<ssize_t>(kBytes));
      EXPECT_EQ(bytes, std::vector<char>(kBytes)) << "something was written";
    }
  }
}

TEST_F(ShmTrustTest, ARegionWhoseGateIsClosedIsNotTouched) {
  Join();
  UniqueFd file = Memfd(kBytes, true, true);
  ASSERT_EQ(Claim(1, RegionKind::kMapped, 4096, kBytes, 0, Duplicate(file.get())), "");
  ASSERT_TRUE(board_->region_gate(1).Withdraw());
  const Bytes payload = Payload(1, kBytes);
  TestSlot slot(payload, kIdentity);
  for (const Kind kind : {Kind::kWrite, Kind::kRead}) {
    const uint64_t request = kind == Kind::kWrite ? 1 : 2;
    board_->Expose(request, {ItemRecord{.bytes = kBytes, .descriptors = 1, .only = {1, 1, 0, kBytes, 0}}}, {});
    const auto end = Start(kind, request, &slot);
    Await([&] { return end->done(); });
    EXPECT_EQ(end->status, TransferStatus::kCancelled);
  }
  EXPECT_TRUE(slot.Holds(payload));
  std::vector<char> bytes(kBytes);
  ASSERT_EQ(pread(file.get(), bytes.data(), kBytes, 0), static_cast<ssize_t>(kBytes));
  EXPECT_EQ(bytes, std::vector<char>(kBytes)) << "something was written";
  EXPECT_FALSE(board_->region_gate(1).used());
}

TEST_F(ShmTrustTest, ASecondReadOfAnItemThatIsGoneDoesNotEndTheFirst) {
  Join();
  ASSERT_EQ(Claim(1, RegionKind::kMapped, 4096, kBytes, 0, Memfd(kBytes, true, true)), "");
  const ItemRecord item{
      .bytes = kBytes, .flags = ItemRecord::kChecksum, .descriptors = 1, .only = {1, 1, 0, kBytes, 0}};
  Gate gate = board_->request_gate(board_->Expose(1, {item}, {}).value());
  TestSlot slots[] = {TestSlot(kBytes), TestSlot(kBytes)};
  const auto first = Start(Kind::kRead, 1, &slots[0]);
  ASSERT_TRUE(client_->Receive(&message_));
  ASSERT_EQ(message_.type, MessageType::kSum);
  Await([&] { return !gate.used(); });  // copied, and waits for its sum
  gate.Withdraw();
  const auto second = Start(Kind::kRead, 1, &slots[1]);
  Await([&] { return second->done(); });
  EXPECT_EQ(second->status, TransferStatus::kCancelled);
  EXPECT_FALSE(first->done());
  client_->Send({.type = MessageType::kSummed, .id = {1, 0}});
  Await([&] { return first->done(); });
  EXPECT_EQ(first->finished, 1);
  EXPECT_EQ(first->status, TransferStatus::kOk);
}

TEST_F(ShmTrustTest, ABoardThatIsCutMovesNothing) {
  Join();
  ASSERT_EQ(Claim(1, RegionKind::kMapped, 4096, kBytes, 0, Memfd(kBytes, true, true)), "");
  board_->Expose(1, {ItemRecord{.bytes = kBytes, .descriptors = 1, .only = {1, 1, 0, kBytes, 0}}}, {});
  const std::string path = "/proc/self/fd/" + std::to_string(board_->gates_fd());
  // The gates cannot be cut; what they say can be anything.
  EXPECT_NE(ftruncate(board_->gates_fd(), 0), 0);
  Mapping gates = *Mapping::Map(board_->gates_fd(), 0, sizeof(Gates));
  auto* shown = reinterpret_cast<Gates*>(gates.data());
  shown->requests[1].items_at = ~uint64_t{0} - 64;
  shown->requests[1].items = ~uint64_t{0};
  TestSlot slot(Payload(1, kBytes), kIdentity);
  const auto end = Start(Kind::kWrite, 1, &slot);
  Await([&] { return end->done(); });
  EXPECT_NE(end->status, TransferStatus::kOk);
  ExpectClosed();
}

}  // namespace
}  // namespace quarry::transport::shm
