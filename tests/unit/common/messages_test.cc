// Our codec by itself: bad bytes, what absence means, framing. messages_proto_test.cc
// holds it against the generated code.
#include "common/session/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quarry::wire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename Message>
std::string Payload(const Message& message) {
  std::string framed;
  AppendFramed(message, &framed);
  return framed.substr(4);
}

template <typename Result>
void ExpectMalformed(const Result& result, const char* what) {
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr(what));
}

TEST(AppendFramed, PutsALittleEndianLengthBeforeEachMessage) {
  std::string out = "before";
  AppendFramed(ClientMessage{5, ReleaseLease{std::string(300, 'x')}}, &out);
  AppendFramed(ServerMessage{6, Ack{}}, &out);
  ASSERT_EQ(out.substr(0, 6), "before");
  // request: 2 bytes; body: tag, length of 2 bytes; lease: tag, length of 2 bytes, 300 bytes
  ASSERT_EQ(out.substr(6, 4), std::string("\x34\x01\0\0", 4));
  const std::string rest = out.substr(10 + 0x134);
  EXPECT_EQ(rest, std::string("\x04\0\0\0\x08\x06\x5a\x00", 8));
}

TEST(Codec, KeepsBodiesWithoutFields) {
  for (const ClientMessage& message : {ClientMessage{1, Cancel{}}, ClientMessage{1, GetView{}},
                                       ClientMessage{1, Credit{}}, ClientMessage{1, Match{}}}) {
    const std::string bytes = Payload(message);
    const auto decoded = DecodeClientMessage(bytes);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->body.index(), message.body.index());
  }
  for (const ServerMessage& message : {ServerMessage{0, Draining{}}, ServerMessage{1, Ack{}},
                                       ServerMessage{1, LeaseReply{}}, ServerMessage{1, Error{}}}) {
    const std::string bytes = Payload(message);
    const auto decoded = DecodeServerMessage(bytes);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->body.index(), message.body.index());
  }
}

TEST(Codec, KeepsEmptyElementsOfRepeatedFields) {
  const std::string touch = Payload(ClientMessage{1, Touch{3, {ChainPart{}, ChainPart{.group = 1}, ChainPart{}}}});
  EXPECT_EQ(std::get<Touch>(DecodeClientMessage(touch)->body).chains.size(), 3u);
  const std::string view = Payload(ServerMessage{1, View{"", {"", "a", ""}}});
  EXPECT_THAT(std::get<View>(DecodeServerMessage(view)->body).nodes, ElementsAre("", "a", ""));
}

TEST(Decode, TakesWhatIsNotOnTheWireAsZero) {
  const auto hello = DecodeClientMessage(std::string("\x12\x00", 2));
  EXPECT_EQ(std::get<Hello>(hello->body).major, 0u);
  const auto open = DecodeClientMessage(std::string("\x1a\x04\x12\x02\x6a\x00", 6));
  const ModelSpec& spec = std::get<OpenNamespace>(open->body).spec;
  EXPECT_EQ(spec.hash_bytes, 0u);
  ASSERT_EQ(spec.groups.size(), 1u);
  EXPECT_EQ(spec.groups[0], (GroupSpec{GroupKind{0}, 0, 0, 0, 0, false}));
  EXPECT_FALSE(Validate(spec).ok());
  const auto reply = DecodeServerMessage(std::string("\x1a\x00", 2));
  EXPECT_EQ(std::get<HelloReply>(reply->body).limits.max_items, 0u);
}

TEST(Decode, PointsIntoTheBytes) {
  const std::string bytes = Payload(ClientMessage{1, Touch{3, {ChainPart{0, 0, "0123456789abcdef"}}}});
  const auto decoded = DecodeClientMessage(bytes);
  const absl::string_view hashes = std::get<Touch>(decoded->body).chains[0].hashes;
  EXPECT_EQ(hashes, "0123456789abcdef");
  EXPECT_GE(hashes.data(), bytes.data());
  EXPECT_LE(hashes.data() + hashes.size(), bytes.data() + bytes.size());
}

TEST(Decode, TakesAnUnknownBodyAsNone) {
  const auto decoded = DecodeClientMessage(std::string("\x08\x07\xc2\x3e\x01x", 6));  // field 1000
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->request, 7u);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(decoded->body));
  EXPECT_TRUE(std::holds_alternative<std::monostate>(DecodeServerMessage("")->body));
}

TEST(Decode, SkipsUnknownFieldsAndOtherWireTypes) {
  // Credit{bytes 9} with fixed64, fixed32, bytes and varint fields that it does not know,
  // and with its own field 1 as a string.
  const std::string credit(
      "\x11"
      "12345678"
      "\x1d"
      "1234"
      "\x22\x02xy"
      "\x28\x96\x01"
      "\x0a\x01z"
      "\x08\x09",
      26);
  const auto decoded = DecodeClientMessage(std::string("\x08\x02\x7a", 3) + static_cast<char>(credit.size()) + credit);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(std::get<Credit>(decoded->body).bytes, 9u);
  const auto request_as_string = DecodeClientMessage(std::string("\x0a\x01z\x78\x01", 5));  // and Credit as a number
  ASSERT_TRUE(request_as_string.ok());
  EXPECT_EQ(request_as_string->request, 0u);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(request_as_string->body));
}

TEST(Decode, TakesRepeatedNumbersPackedOrNot) {
  const auto decoded = DecodeClientMessage(std::string("\x62\x08\x18\x05\x1a\x02\x06\x07\x18\x08", 10));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_THAT(std::get<Delivered>(decoded->body).corrupt_items, ElementsAre(5, 6, 7, 8));
}

TEST(Decode, RefusesEnumsOutOfRange) {
  const auto miss = [](int cause) { return Payload(ServerMessage{1, MatchReply{.first_miss = MissCause(cause)}}); };
  EXPECT_TRUE(DecodeServerMessage(miss(kMissCauses - 1)).ok());
  ExpectMalformed(DecodeServerMessage(miss(kMissCauses)), "enum");
  ExpectMalformed(DecodeServerMessage(Payload(ServerMessage{1, GetProgress{{1}, {MissCause(kMissCauses)}}})), "enum");
  const auto put = [](int outcome, int reason) {
    return Payload(ServerMessage{1, PutProgress{{1}, {PutOutcome(outcome)}, {RefusalReason(reason)}}});
  };
  EXPECT_TRUE(DecodeServerMessage(put(3, kRefusalReasons - 1)).ok());
  ExpectMalformed(DecodeServerMessage(put(4, 0)), "enum");
  ExpectMalformed(DecodeServerMessage(put(0, kRefusalReasons)), "enum");
  const auto kind = [](int value) {
    return Payload(ClientMessage{1, OpenNamespace{"n", ModelSpec{.groups = {GroupSpec{GroupKind(value)}}}}});
  };
  EXPECT_TRUE(DecodeClientMessage(kind(3)).ok());
  ExpectMalformed(DecodeClientMessage(kind(4)), "enum");
  // -1, as ten bytes
  ExpectMalformed(DecodeServerMessage("\x2a\x0b\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "enum");
  ExpectMalformed(DecodeServerMessage(Payload(ServerMessage{1, MatchReply{.chains = {{"\x04\x05"}}}})), "block state");
  EXPECT_TRUE(DecodeServerMessage(Payload(ServerMessage{1, MatchReply{.chains = {{"\x04\x01"}}}})).ok());
}

TEST(Decode, RefusesArraysOfUnequalLength) {
  using enum PutOutcome;
  constexpr RefusalReason kNo = RefusalReason::kNone;
  ExpectMalformed(DecodeServerMessage(Payload(ServerMessage{1, GetProgress{{1, 2}, {MissCause::kEvicted}}})), "differ");
  ExpectMalformed(DecodeServerMessage(Payload(ServerMessage{1, GetProgress{{}, {MissCause::kEvicted}}})), "differ");
  ExpectMalformed(DecodeServerMessage(Payload(ServerMessage{1, PutProgress{{1, 2}, {kStored}, {kNo, kNo}}})), "differ");
  ExpectMalformed(DecodeServerMessage(Payload(ServerMessage{1, PutProgress{{1}, {kStored}, {}}})), "differ");
  ExpectMalformed(DecodeServerMessage(Payload(ServerMessage{1, PutProgress{{}, {kStored}, {kNo}}})), "differ");
}

TEST(Decode, RefusesMalformedBytes) {
  const absl::string_view cases[] = {
      {"\x08", 1},                                           // no value
      {"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 11},  // a number of more than 64 bits
      {"\x12\x05x", 3},                                      // shorter than it says
      {"\x00\x00", 2},                                       // field 0
      {"\x0b\x0c", 2},                                       // a group
      {"\x0f\x00", 2},                                       // wire type 7
      {"\x12\x02\x08\x80", 4},                               // a number cut off inside a body
      {"\x62\x03\x1a\x01\xff", 5},                           // inside a packed field
      {"\x12\xff\xff\xff\xff\x0f", 6},                       // 4 GiB
  };
  for (const absl::string_view bytes : cases) {
    ExpectMalformed(DecodeClientMessage(bytes), "malformed ClientMessage");
    if (bytes[0] != '\x62') ExpectMalformed(DecodeServerMessage(bytes), "malformed ServerMessage");
  }
}

TEST(Decode, RefusesMoreThanItsLimits) {
  ExpectMalformed(DecodeClientMessage(std::string(kMaxMessageBytes + 1, '\0')), "at most 4194304");
  Touch touch;
  touch.chains.resize(128 << 10);
  EXPECT_TRUE(DecodeClientMessage(Payload(ClientMessage{1, touch})).ok());
  touch.chains.emplace_back();
  ExpectMalformed(DecodeClientMessage(Payload(ClientMessage{1, touch})), "too many elements");
}

}  // namespace
}  // namespace quarry::wire
