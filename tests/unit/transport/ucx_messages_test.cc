// What the ends of UCX say to each other, byte by byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/transport/tcp/frame.h"
#include "common/transport/ucx/greeting.h"
#include "common/transport/ucx/message.h"

namespace quarry::transport::ucx {
namespace {

using ::testing::HasSubstr;

absl::Span<const std::byte> BytesOf(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

TEST(UcxMessage, SurvivesTheWire) {
  const Message sent{0x0102030405060708, {9, 10}, MessageType::kPull, 11};
  std::string header;
  EncodeMessage(sent, &header);
  ASSERT_EQ(header.size(), kHeaderBytes);
  EXPECT_EQ(header.substr(0, 8), "\x08\x07\x06\x05\x04\x03\x02\x01");
  Message got;
  absl::Span<const std::byte> rest;
  const std::string with_more = header + "more";
  ASSERT_TRUE(DecodeMessage(BytesOf(with_more), &got, &rest).ok());
  EXPECT_EQ(got.token, sent.token);
  EXPECT_EQ(got.id, sent.id);
  EXPECT_EQ(got.type, sent.type);
  EXPECT_EQ(got.trailing_bytes, sent.trailing_bytes);
  EXPECT_EQ(rest.size(), 4u);
}

TEST(UcxMessage, WhatIsWrongIsNamed) {
  std::string header;
  EncodeMessage({.token = 1}, &header);
  const auto why = [](const std::string& bytes) {
    Message message;
    absl::Span<const std::byte> rest;
    return std::string(DecodeMessage(BytesOf(bytes), &message, &rest).message());
  };
  EXPECT_EQ(why(header), "");
  EXPECT_THAT(why(header.substr(1)), HasSubstr("header: 32 bytes or more, got 31"));
  std::string bad = header;
  bad[20] = 0;
  EXPECT_THAT(why(bad), HasSubstr("type: 1 to 11, got 0"));
  for (const size_t reserved : {21, 22, 23, 28, 31}) {
    bad = header;
    bad[reserved] = 1;
    EXPECT_THAT(why(bad), HasSubstr("reserved must be 0"));
  }
  bad = header;
  bad[26] = 1;
  EXPECT_THAT(why(bad), HasSubstr("trailing_bytes: at most"));
}

TEST(UcxGreeting, SurvivesTheWire) {
  const Greeting sent{Greeting::Kind::kRefusal, 0x0102030405060708, 1, 22, true, std::string("a\0b", 3)};
  const std::string encoded = EncodeGreeting(sent);
  ASSERT_EQ(encoded.size(), kGreetingFixedBytes + 3);
  EXPECT_EQ(*GreetingBytes(encoded), encoded.size());
  const auto got = DecodeGreeting(encoded);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->kind, sent.kind);
  EXPECT_EQ(got->token, sent.token);
  EXPECT_EQ(got->major, sent.major);
  EXPECT_EQ(got->minor, sent.minor);
  EXPECT_EQ(got->rma, sent.rma);
  EXPECT_EQ(got->text, sent.text);
}

TEST(UcxGreeting, LengthsOutOfBoundsAreNamed) {
  EXPECT_THAT(std::string(GreetingBytes(std::string("\x1F\0\0\0", 4)).status().message()),
              HasSubstr("31 bytes, must be 32 to 8192"));
  EXPECT_THAT(std::string(GreetingBytes(std::string("\x01\x20\0\0", 4)).status().message()), HasSubstr("8193 bytes"));
  EXPECT_EQ(EncodeGreeting({.text = std::string(1 << 20, 'x')}).size(), kMaxGreetingBytes);
}

TEST(UcxGreeting, OnlyVersionsThatWereTriedTogetherWorkTogether) {
  const Greeting one{.major = 1, .minor = 13};
  Greeting other = one;
  EXPECT_TRUE(CheckVersions(one, other).ok());
  other.minor = 22;
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckVersions(one, other)));
  other = {.major = 2, .minor = 13};
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckVersions(one, other)));
}

}  // namespace
}  // namespace quarry::transport::ucx
