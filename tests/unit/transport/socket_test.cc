#include "common/net/socket.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/transport/sockets.h"

namespace quarry {
namespace {

using ::testing::HasSubstr;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(HostPortTest, ParsesNamesAndBothFamilies) {
  struct {
    const char* text;
    const char* host;
    uint16_t port;
  } cases[] = {{"localhost:7420", "localhost", 7420},
               {"127.0.0.1:0", "127.0.0.1", 0},
               {"[::1]:65535", "::1", 65535},
               {"[fe80::1%eth0]:1", "fe80::1%eth0", 1}};
  for (const auto& c : cases) {
    auto parsed = ParseHostPort(c.text);
    ASSERT_TRUE(parsed.ok()) << c.text << ": " << parsed.status();
    EXPECT_EQ(parsed->host, c.host);
    EXPECT_EQ(parsed->port, c.port);
    EXPECT_EQ(FormatHostPort(*parsed), c.text);
  }
}

TEST(HostPortTest, ErrorsNameTheAddressAndTheFault) {
  const std::pair<const char*, const char*> cases[] = {{"", "no port"},           {"localhost", "no port"},
                                                       {":7420", "no host"},      {"[]:7420", "no host"},
                                                       {"::1:7420", "brackets"},  {"[::1]", "no ']:'"},
                                                       {"[::1:7420", "no ']:'"},  {"localhost:", "port"},
                                                       {"localhost:x", "port"},   {"localhost:65536", "65535"},
                                                       {"localhost:-1", "65535"}, {"localhost:1x", "port"},
                                                       {"a:b:1", "brackets"},     {"localhost:99999999999", "65535"}};
  for (const auto& [text, fault] : cases) {
    auto parsed = ParseHostPort(text);
    ASSERT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(Message(parsed.status()), HasSubstr(fault));
    EXPECT_THAT(Message(parsed.status()), HasSubstr(std::string("'") + text + "'"));
  }
}

TEST(SocketTest, ConnectionsCarryBytesOverBothFamilies) {
  for (const char* host : {"127.0.0.1", "::1"}) {
    HostPort bound;
    auto listener = ListenTcp({host, 0}, &bound);
    ASSERT_TRUE(listener.ok()) << listener.status();
    EXPECT_NE(bound.port, 0);
    auto dialled = Dial(FormatHostPort(bound), SoonNs());
    ASSERT_TRUE(dialled.ok()) << dialled.status();
    UniqueFd accepted = AcceptOne(listener->get());
    int no_delay = 0;
    socklen_t length = sizeof no_delay;
    ASSERT_EQ(getsockopt(dialled->get(), IPPROTO_TCP, TCP_NODELAY, &no_delay, &length), 0);
    EXPECT_NE(no_delay, 0);
    EXPECT_TRUE(fcntl(dialled->get(), F_GETFL) & O_NONBLOCK);
    EXPECT_TRUE(fcntl(dialled->get(), F_GETFD) & FD_CLOEXEC);

    // More than the socket takes at once, both ways.
    const std::string sent(8 << 20, 'q');
    std::thread writer([&] { EXPECT_TRUE(WriteAll(dialled->get(), sent, SoonNs()).ok()); });
    std::string received(sent.size(), ' ');
    EXPECT_TRUE(ReadExactly(accepted.get(), received.data(), received.size(), SoonNs()).ok());
    writer.join();
    EXPECT_EQ(received, sent);
  }
}

TEST(SocketTest, AnAddressInUseIsNamed) {
  HostPort bound;
  auto listener = ListenTcp({"127.0.0.1", 0}, &bound);
  ASSERT_TRUE(listener.ok());
  HostPort other;
  auto second = ListenTcp(bound, &other);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(second.status()), HasSubstr(FormatHostPort(bound)));
  EXPECT_THAT(Message(second.status()), HasSubstr("in use"));
  *listener = UniqueFd();
  EXPECT_TRUE(ListenTcp(bound, &other).ok()) << "free again at once";
}

TEST(SocketTest, NamesThatDoNotResolveAreNamed) {
  HostPort bound;
  EXPECT_THAT(Message(ListenTcp({"no-such-host.invalid", 0}, &bound).status()), HasSubstr("no-such-host.invalid"));
  EXPECT_THAT(Message(Dial("no-such-host.invalid:1", SoonNs()).status()), HasSubstr("no-such-host.invalid"));
  EXPECT_EQ(Dial("nonsense", SoonNs()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SocketTest, ARefusedConnectionIsUnavailable) {
  HostPort bound;
  ASSERT_TRUE(ListenTcp({"127.0.0.1", 0}, &bound).ok());  // closed again
  const absl::Status status = Dial(FormatHostPort(bound), SoonNs()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr(FormatHostPort(bound)));
}

TEST(SocketTest, ReadsAndWritesKeepTheirDeadline) {
  SocketPair pair = LocalPair(4096);
  char byte;
  const int64_t soon = Clock::Real()->NowNs() + 20'000'000;
  EXPECT_EQ(ReadExactly(pair.first.get(), &byte, 1, soon).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(WriteAll(pair.first.get(), std::string(1 << 20, 'x'), soon).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_GE(Clock::Real()->NowNs(), soon);
  pair.second = UniqueFd();
  EXPECT_EQ(ReadExactly(pair.first.get(), &byte, 1, SoonNs()).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(WriteAll(pair.first.get(), "x", SoonNs()).code(), absl::StatusCode::kUnavailable);
}

// A folder of its own, removed at the end.
class UnixSocketTest : public ::testing::Test {
 public:
  UnixSocketTest() {
    char name[] = "/tmp/quarry-socket-test-XXXXXX";
    folder_ = mkdtemp(name);
    path_ = folder_ + "/socket";
  }
  ~UnixSocketTest() override { std::filesystem::remove_all(folder_); }

 protected:
  std::string folder_;
  std::string path_;
};

TEST_F(UnixSocketTest, OnlyItsOwnerMayConnect) {
  auto listener = ListenUnix(path_);
  ASSERT_TRUE(listener.ok()) << listener.status();
  struct stat info;
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_TRUE(S_ISSOCK(info.st_mode));
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  auto dialled = Dial("unix:" + path_, SoonNs());
  ASSERT_TRUE(dialled.ok()) << dialled.status();
  UniqueFd accepted = AcceptOne(listener->get());
  EXPECT_TRUE(WriteAll(dialled->get(), "hello", SoonNs()).ok());
  char hello[5];
  EXPECT_TRUE(ReadExactly(accepted.get(), hello, sizeof hello, SoonNs()).ok());
}

TEST_F(UnixSocketTest, AStaleSocketIsReplaced) {
  { ASSERT_TRUE(ListenUnix(path_).ok()); }  // as a process that died leaves it
  ASSERT_TRUE(std::filesystem::exists(path_));
  EXPECT_EQ(Dial("unix:" + path_, SoonNs()).status().code(), absl::StatusCode::kUnavailable);
  auto again = ListenUnix(path_);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(Dial("unix:" + path_, SoonNs()).ok());
}

TEST_F(UnixSocketTest, ALiveSocketIsRefused) {
  auto live = ListenUnix(path_);
  ASSERT_TRUE(live.ok());
  auto second = ListenUnix(path_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(second.status()), HasSubstr(path_));
  EXPECT_TRUE(Dial("unix:" + path_, SoonNs()).ok()) << "the first one still listens";
}

TEST_F(UnixSocketTest, WhatIsNoSocketIsLeftAlone) {
  std::FILE* file = std::fopen(path_.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fclose(file);
  EXPECT_FALSE(ListenUnix(path_).ok());
  EXPECT_TRUE(std::filesystem::is_regular_file(path_));
  EXPECT_THAT(Message(ListenUnix(std::string(200, 'x')).status()), HasSubstr("107"));
  EXPECT_THAT(Message(ListenUnix("").status()), HasSubstr("1 to 107"));
  EXPECT_FALSE(ListenUnix(folder_ + "/none/socket").ok());
}

// Listens with room for almost nobody, and accepts nobody.
template <typename Address>
UniqueFd FullListener(const Address& address, int family) {
  UniqueFd listener(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) std::abort();
  if (listen(listener.get(), 0) != 0) std::abort();
  return listener;
}

// Dials until the backlog is full; the one that found it so ends at its deadline. Returns
// the others.
std::vector<UniqueFd> FillBacklog(const std::string& address) {
  std::vector<UniqueFd> connected;
  for (int i = 0; i < 16; ++i) {
    const int64_t deadline = Clock::Real()->NowNs() + 100'000'000;
    auto dialled = Dial(address, deadline);
    if (dialled.ok()) {
      connected.push_back(*std::move(dialled));
      continue;
    }
    EXPECT_EQ(dialled.status().code(), absl::StatusCode::kDeadlineExceeded) << dialled.status();
    EXPECT_GE(Clock::Real()->NowNs(), deadline);
    for (const UniqueFd& fd : connected) {
      sockaddr_storage peer;
      socklen_t length = sizeof peer;
      EXPECT_EQ(getpeername(fd.get(), reinterpret_cast<sockaddr*>(&peer), &length), 0) << "not connected at all";
    }
    return connected;
  }
  ADD_FAILURE() << "the backlog never filled, or connections were reported that are none";
  return connected;
}

void ExpectDialEndsWhenInterrupted(const std::string& address) {
  const UniqueFd event(eventfd(0, EFD_CLOEXEC));
  std::thread interrupter([&] { eventfd_write(event.get(), 1); });
  EXPECT_EQ(Dial(address, SoonNs(), event.get()).status().code(), absl::StatusCode::kCancelled);
  interrupter.join();
}

TEST(SocketTest, DialEndsAtItsDeadlineOrInterruptWhenNobodyAccepts) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  UniqueFd listener = FullListener(address, AF_INET);
  socklen_t length = sizeof address;
  ASSERT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  const std::string name = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  const auto connected = FillBacklog(name);
  ExpectDialEndsWhenInterrupted(name);
}

TEST_F(UnixSocketTest, DialEndsAtItsDeadlineOrInterruptWhenNobodyAccepts) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path_.copy(address.sun_path, sizeof address.sun_path - 1);
  UniqueFd listener = FullListener(address, AF_UNIX);
  const auto connected = FillBacklog("unix:" + path_);
  ExpectDialEndsWhenInterrupted("unix:" + path_);
}

TEST_F(UnixSocketTest, DialWaitsForRoomInTheBacklog) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path_.copy(address.sun_path, sizeof address.sun_path - 1);
  UniqueFd listener = FullListener(address, AF_UNIX);
  auto first = Dial("unix:" + path_, SoonNs());
  ASSERT_TRUE(first.ok());
  std::thread dialler([&] {
    auto second = Dial("unix:" + path_, SoonNs());
    ASSERT_TRUE(second.ok()) << second.status();
    EXPECT_TRUE(WriteAll(second->get(), "x", SoonNs()).ok());
  });
  AcceptOne(listener.get());
  UniqueFd second = AcceptOne(listener.get());
  char byte;
  EXPECT_TRUE(ReadExactly(second.get(), &byte, 1, SoonNs()).ok());
  dialler.join();
}

TEST(UniqueFdTest, OwnsOneDescriptor) {
  int fds[2];
  ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
  UniqueFd write_end(fds[1]);
  {
    UniqueFd read_end(fds[0]);
    UniqueFd moved = std::move(read_end);
    EXPECT_EQ(moved.get(), fds[0]);
    EXPECT_EQ(fcntl(fds[0], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  }
  EXPECT_EQ(fcntl(fds[0], F_GETFD), -1);
  EXPECT_EQ(write_end.release(), fds[1]);
  EXPECT_FALSE(write_end);
  close(fds[1]);
}

}  // namespace
}  // namespace quarry
