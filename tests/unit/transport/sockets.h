// Connected pairs of sockets for tests.
#ifndef QUARRY_TESTS_UNIT_TRANSPORT_SOCKETS_H_
#define QUARRY_TESTS_UNIT_TRANSPORT_SOCKETS_H_

#include <poll.h>
#include <sys/socket.h>

#include <cstdlib>

#include "common/clock.h"
#include "common/net/socket.h"

namespace quarry {

struct SocketPair {
  UniqueFd first;
  UniqueFd second;
};

inline int64_t SoonNs() { return Clock::Real()->NowNs() + 30'000'000'000; }

// Accepts one connection; waits for it.
inline UniqueFd AcceptOne(int listener) {
  pollfd entry{listener, POLLIN, 0};
  if (poll(&entry, 1, 30'000) != 1) std::abort();
  UniqueFd accepted(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!accepted) std::abort();
  return accepted;
}

// A TCP connection over the loopback interface; both ends non-blocking.
inline SocketPair TcpPair() {
  HostPort bound;
  auto listener = ListenTcp({"127.0.0.1", 0}, &bound);
  if (!listener.ok()) std::abort();
  auto dialled = Dial(FormatHostPort(bound), SoonNs());
  if (!dialled.ok()) std::abort();
  return {*std::move(dialled), AcceptOne(listener->get())};
}

// `buffer_bytes`: of each direction, about; 0: as the kernel likes.
inline SocketPair LocalPair(int buffer_bytes = 0) {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) std::abort();
  if (buffer_bytes > 0) {
    for (int fd : fds) SetSocketBuffers(fd, buffer_bytes, buffer_bytes);
  }
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

}  // namespace quarry

#endif  // QUARRY_TESTS_UNIT_TRANSPORT_SOCKETS_H_
