#include "common/session/message_buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <string>
#include <vector>

#include "common/session/messages.h"
#include "tests/unit/common/test_seed.h"
#include "tests/unit/transport/sockets.h"

namespace quarry::wire {
namespace {

std::string Framed(absl::string_view message) {
  const auto length = static_cast<uint32_t>(message.size());
  std::string framed(sizeof length, '\0');
  std::memcpy(framed.data(), &length, sizeof length);
  return framed.append(message.data(), message.size());
}

std::string MessageOf(size_t bytes, size_t seed) {
  std::string message(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) message[i] = static_cast<char>(i * 31 + seed);
  return message;
}

// All messages that are whole by now.
std::vector<std::string> TakeAll(MessageBuffer& buffer) {
  std::vector<std::string> taken;
  absl::string_view message;
  absl::Status status;
  while (buffer.Next(&message, &status)) taken.emplace_back(message);
  EXPECT_TRUE(status.ok()) << status;
  return taken;
}

TEST(MessageBufferTest, AnyCutsGiveTheSameMessages) {
  TestRandom random;
  for (int round = 0; round < 8; ++round) {
    std::vector<std::string> messages;
    std::string stream;
    for (size_t i = 0; i < 40; ++i) {
      const size_t most = random.Chance(0.1) ? 300'000 : 200;
      messages.push_back(MessageOf(random.Between(1, most), i));
      stream += Framed(messages.back());
    }
    SocketPair pair = LocalPair();
    MessageBuffer buffer;
    std::vector<std::string> taken;
    for (size_t sent = 0; sent < stream.size();) {
      const size_t cut = std::min<size_t>(random.Between(1, random.Chance(0.5) ? 10 : 100'000), stream.size() - sent);
      ASSERT_TRUE(WriteAll(pair.first.get(), stream.substr(sent, cut), SoonNs()).ok());
      sent += cut;
      // Several reads may be needed; the last one finds nothing.
      for (int i = 0; i < 4; ++i) {
        ASSERT_TRUE(buffer.Fill(pair.second.get()).ok());
        for (std::string& message : TakeAll(buffer)) taken.push_back(std::move(message));
      }
    }
    while (taken.size() < messages.size()) {
      ASSERT_TRUE(buffer.Fill(pair.second.get()).ok());
      for (std::string& message : TakeAll(buffer)) taken.push_back(std::move(message));
    }
    EXPECT_TRUE(taken == messages);
    EXPECT_TRUE(buffer.empty());
  }
}

TEST(MessageBufferTest, TheLongestMessagePasses) {
  SocketPair pair = LocalPair();
  const std::string message = MessageOf(kMaxMessageBytes, 1);
  std::thread writer([&] { EXPECT_TRUE(WriteAll(pair.first.get(), Framed(message) + Framed("next"), SoonNs()).ok()); });
  MessageBuffer buffer;
  std::vector<std::string> taken;
  while (taken.size() < 2) {
    ASSERT_TRUE(buffer.Fill(pair.second.get()).ok());
    for (std::string& one : TakeAll(buffer)) taken.push_back(std::move(one));
  }
  writer.join();
  EXPECT_TRUE(taken[0] == message);
  EXPECT_EQ(taken[1], "next");
}

TEST(MessageBufferTest, LengthsOutOfBoundsNameTheBound) {
  for (uint32_t length : {uint32_t{0}, static_cast<uint32_t>(kMaxMessageBytes + 1), ~uint32_t{0}}) {
    SocketPair pair = LocalPair();
    std::string bytes = Framed("first");
    bytes.append(reinterpret_cast<const char*>(&length), sizeof length);
    ASSERT_TRUE(WriteAll(pair.first.get(), bytes, SoonNs()).ok());
    MessageBuffer buffer;
    ASSERT_TRUE(buffer.Fill(pair.second.get()).ok());
    absl::string_view message;
    absl::Status status;
    ASSERT_TRUE(buffer.Next(&message, &status));
    EXPECT_EQ(message, "first");
    EXPECT_FALSE(buffer.Next(&message, &status));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(std::to_string(kMaxMessageBytes)));
  }
}

TEST(MessageBufferTest, ALengthAloneTakesNoMemory) {
  // A thousand connections that promise the longest message and send none of it.
  rusage before;
  getrusage(RUSAGE_SELF, &before);
  std::vector<MessageBuffer> buffers(1000);
  const auto length = static_cast<uint32_t>(kMaxMessageBytes);
  for (MessageBuffer& buffer : buffers) {
    SocketPair pair = LocalPair();
    const std::string promise(reinterpret_cast<const char*>(&length), sizeof length);
    ASSERT_TRUE(WriteAll(pair.first.get(), promise + "x", SoonNs()).ok());
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(buffer.Fill(pair.second.get()).ok());
      EXPECT_TRUE(TakeAll(buffer).empty());
    }
  }
  rusage after;
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 1000 << 10) << "KiB, for 4 GiB promised";
}

TEST(MessageBufferTest, BytesWithoutALengthAreTakenWhole) {
  SocketPair pair = LocalPair();
  MessageBuffer buffer;
  absl::string_view taken;
  EXPECT_FALSE(buffer.Take(3, &taken));
  ASSERT_TRUE(buffer.Fill(pair.second.get()).ok()) << "nothing there is no error";
  ASSERT_TRUE(WriteAll(pair.first.get(), "ab", SoonNs()).ok());
  ASSERT_TRUE(buffer.Fill(pair.second.get()).ok());
  EXPECT_FALSE(buffer.Take(3, &taken));
  ASSERT_TRUE(WriteAll(pair.first.get(), "c" + Framed("message"), SoonNs()).ok());
  ASSERT_TRUE(buffer.Fill(pair.second.get()).ok());
  ASSERT_TRUE(buffer.Take(3, &taken));
  EXPECT_EQ(taken, "abc");
  EXPECT_EQ(TakeAll(buffer), std::vector<std::string>{"message"});
}

TEST(MessageBufferTest, APeerThatClosesIsUnavailable) {
  SocketPair pair = LocalPair();
  ASSERT_TRUE(WriteAll(pair.first.get(), Framed("last").substr(0, 6), SoonNs()).ok());
  pair.first = UniqueFd();
  MessageBuffer buffer;
  ASSERT_TRUE(buffer.Fill(pair.second.get()).ok());
  EXPECT_TRUE(TakeAll(buffer).empty());
  EXPECT_EQ(buffer.Fill(pair.second.get()).code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace quarry::wire
