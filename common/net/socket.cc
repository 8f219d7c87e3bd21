#include "common/net/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/clock.h"

namespace quarry {
namespace {

constexpr int kListenBacklog = 1024;
constexpr int64_t kConnectRetryNs = 5'000'000;

struct FreeAddrInfo {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using AddrInfoList = std::unique_ptr<addrinfo, FreeAddrInfo>;

absl::StatusOr<AddrInfoList> Resolve(const HostPort& address, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &list);
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat("cannot resolve '", address.host, "': ", gai_strerror(error)));
  }
  return AddrInfoList(list);
}

// Waits until the socket is ready for `events`, the deadline has passed or the interrupt
// can be read. Neither descriptor has to be one: poll passes over -1.
absl::Status WaitFor(int fd, short events, int64_t deadline_ns, int interrupt_fd = -1) {
  while (true) {
    const int64_t left_ns = deadline_ns - Clock::Real()->NowNs();
    if (left_ns <= 0) return absl::DeadlineExceededError("the peer did not answer in time");
    pollfd entries[] = {{fd, events, 0}, {interrupt_fd, POLLIN, 0}};
    const int ready = poll(entries, 2, static_cast<int>(std::min<int64_t>(left_ns / 1'000'000 + 1, 60'000)));
    if (ready < 0 && errno != EINTR) return ErrnoStatus(errno, "poll");
    if (ready <= 0) continue;
    if (entries[1].revents != 0) return absl::CancelledError("interrupted");
    return absl::OkStatus();
  }
}

bool IsLoopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  }
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

// Within a host there is no network to share, and a congestion control that paces, as BBR
// does, only costs: a sixth of the rate. Before connecting and listening, since a socket
// that has once paced goes on pacing. Best effort.
void AvoidPacingWithinHost(int fd, const sockaddr* address) {
  constexpr char kUnpaced[] = "reno";  // in every kernel, and open to every user
  if (IsLoopback(address)) setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kUnpaced, sizeof kUnpaced - 1);
}

absl::StatusOr<UniqueFd> Connect(const sockaddr* address, socklen_t length, int64_t deadline_ns,
                                 int interrupt_fd = -1) {
  UniqueFd fd(socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return ErrnoStatus(errno, "socket");
  AvoidPacingWithinHost(fd.get(), address);
  int result;
  // EAGAIN: the backlog of a Unix socket is full. Nothing tells when it no longer is.
  while ((result = connect(fd.get(), address, length)) != 0 && errno == EAGAIN) {
    const int64_t now_ns = Clock::Real()->NowNs();
    if (now_ns >= deadline_ns) return absl::DeadlineExceededError("the peer did not accept in time");
    const absl::Status pause = WaitFor(-1, 0, now_ns + kConnectRetryNs, interrupt_fd);
    if (!absl::IsDeadlineExceeded(pause)) return pause;
  }
  if (result != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return ErrnoStatus(errno, "connect");
    if (absl::Status status = WaitFor(fd.get(), POLLOUT, deadline_ns, interrupt_fd); !status.ok()) return status;
    int error = 0;
    socklen_t error_length = sizeof error;
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &error_length);
    if (error != 0) return ErrnoStatus(error, "connect");
  }
  if (address->sa_family != AF_UNIX) SetNoDelay(fd.get());
  return fd;
}

absl::StatusOr<sockaddr_un> UnixAddress(absl::string_view path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(
        absl::StrCat("socket path: 1 to ", sizeof address.sun_path - 1, " bytes, got ", path.size()));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

absl::StatusOr<UniqueFd> BindAndListen(const sockaddr* address, socklen_t length) {
  UniqueFd fd(socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return ErrnoStatus(errno, "socket");
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address->sa_family == AF_INET6) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  AvoidPacingWithinHost(fd.get(), address);
  if (bind(fd.get(), address, length) != 0) return ErrnoStatus(errno, "bind");
  if (listen(fd.get(), kListenBacklog) != 0) return ErrnoStatus(errno, "listen");
  return fd;
}

}  // namespace

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) close(fd_);
}

absl::Status ErrnoStatus(int error, absl::string_view what) {
  const std::string message = absl::StrCat(what, ": ", strerror(error));
  switch (error) {
    case EADDRINUSE:
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ENOENT:
      return absl::UnavailableError(message);
    case ETIMEDOUT:
      return absl::DeadlineExceededError(message);
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(message);
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::UnknownError(message);
  }
}

absl::StatusOr<HostPort> ParseHostPort(absl::string_view address) {
  const auto bad = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("address '", address, "': ", why, " (expected host:port or [ipv6]:port)"));
  };
  HostPort parsed;
  absl::string_view port;
  if (absl::StartsWith(address, "[")) {
    const size_t close_bracket = address.find("]:");
    if (close_bracket == absl::string_view::npos) return bad("no ']:'");
    parsed.host = std::string(address.substr(1, close_bracket - 1));
    port = address.substr(close_bracket + 2);
  } else {
    const size_t colon = address.find(':');
    if (colon == absl::string_view::npos) return bad("no port");
    if (address.rfind(':') != colon) return bad("an IPv6 address needs brackets");
    parsed.host = std::string(address.substr(0, colon));
    port = address.substr(colon + 1);
  }
  if (parsed.host.empty()) return bad("no host");
  uint32_t number = 0;
  if (!absl::SimpleAtoi(port, &number) || number > 65535) return bad("the port is not a number from 0 to 65535");
  parsed.port = static_cast<uint16_t>(number);
  return parsed;
}

std::string FormatHostPort(const HostPort& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return v6 ? absl::StrCat("[", address.host, "]:", address.port) : absl::StrCat(address.host, ":", address.port);
}

absl::StatusOr<UniqueFd> ListenTcp(const HostPort& address, HostPort* bound) {
  auto resolved = Resolve(address, AI_PASSIVE);
  if (!resolved.ok()) return resolved.status();
  auto fd = BindAndListen((*resolved)->ai_addr, (*resolved)->ai_addrlen);
  if (!fd.ok()) {
    return absl::Status(fd.status().code(), absl::StrCat("cannot listen on ", FormatHostPort(address), ": ",
                                                         absl::string_view(fd.status().message())));
  }
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  if (getsockname(fd->get(), reinterpret_cast<sockaddr*>(&name), &length) != 0)
    return ErrnoStatus(errno, "getsockname");
  bound->host = address.host;
  bound->port = ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&name)->sin6_port
                                                 : reinterpret_cast<sockaddr_in*>(&name)->sin_port);
  return fd;
}

absl::StatusOr<UniqueFd> ListenUnix(const std::string& path) {
  auto address = UnixAddress(path);
  if (!address.ok()) return address.status();
  const auto* name = reinterpret_cast<const sockaddr*>(&*address);
  // A file left by a daemon that died refuses connections; one that answers is in use.
  const int64_t soon = Clock::Real()->NowNs() + 1'000'000'000;
  if (auto probe = Connect(name, sizeof *address, soon); probe.ok()) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", path, ": another process does"));
  }
  struct stat info;
  if (lstat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode)) unlink(path.c_str());
  const mode_t before = umask(0177);
  auto fd = BindAndListen(name, sizeof *address);
  umask(before);
  if (!fd.ok()) {
    return absl::Status(fd.status().code(),
                        absl::StrCat("cannot listen on ", path, ": ", absl::string_view(fd.status().message())));
  }
  return fd;
}

absl::StatusOr<UniqueFd> Dial(absl::string_view address, int64_t deadline_ns, int interrupt_fd) {
  if (absl::string_view path = address; absl::ConsumePrefix(&path, "unix:")) {
    auto name = UnixAddress(path);
    if (!name.ok()) return name.status();
    return Connect(reinterpret_cast<const sockaddr*>(&*name), sizeof *name, deadline_ns, interrupt_fd);
  }
  auto target = ParseHostPort(address);
  if (!target.ok()) return target.status();
  auto resolved = Resolve(*target, 0);
  if (!resolved.ok()) return resolved.status();
  absl::Status last = absl::UnavailableError("no address");
  for (const addrinfo* entry = resolved->get(); entry != nullptr; entry = entry->ai_next) {
    auto fd = Connect(entry->ai_addr, entry->ai_addrlen, deadline_ns, interrupt_fd);
    if (fd.ok()) return fd;
    last = fd.status();
    if (absl::IsCancelled(last)) break;
  }
  return absl::Status(last.code(),
                      absl::StrCat("cannot connect to ", address, ": ", absl::string_view(last.message())));
}

absl::Status WriteAll(int fd, absl::string_view data, int64_t deadline_ns) {
  while (!data.empty()) {
    const ssize_t sent = send(fd, data.data(), data.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      data.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      if (absl::Status status = WaitFor(fd, POLLOUT, deadline_ns); !status.ok()) return status;
    } else if (errno != EINTR) {
      return ErrnoStatus(errno, "send");
    }
  }
  return absl::OkStatus();
}

absl::Status ReadExactly(int fd, void* data, size_t bytes, int64_t deadline_ns) {
  auto* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = recv(fd, to, bytes, 0);
    if (got > 0) {
      to += got;
      bytes -= static_cast<size_t>(got);
    } else if (got == 0) {
      return absl::UnavailableError("the peer closed the connection");
    } else if (errno == EAGAIN) {
      if (absl::Status status = WaitFor(fd, POLLIN, deadline_ns); !status.ok()) return status;
    } else if (errno != EINTR) {
      return ErrnoStatus(errno, "recv");
    }
  }
  return absl::OkStatus();
}

void SetSocketBuffers(int fd, int send_bytes, int receive_bytes) {
  // Best effort: the kernel's own sizes work too, only slower.
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof send_bytes);
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
}

bool IsUnixSocket(int fd) {
  int domain = 0;
  socklen_t length = sizeof domain;
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX;
}

bool IsWithinHost(int fd) {
  sockaddr_storage peer{};
  sockaddr_storage self{};
  socklen_t peer_length = sizeof peer;
  socklen_t self_length = sizeof self;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_length) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&self), &self_length) != 0) {
    return false;
  }
  if (self.ss_family == AF_UNIX || IsLoopback(reinterpret_cast<const sockaddr*>(&self))) return true;
  // A host that talks to itself has its own address at both ends.
  if (self.ss_family == AF_INET) {
    return reinterpret_cast<sockaddr_in&>(self).sin_addr.s_addr == reinterpret_cast<sockaddr_in&>(peer).sin_addr.s_addr;
  }
  return IN6_ARE_ADDR_EQUAL(&reinterpret_cast<sockaddr_in6&>(self).sin6_addr,
                            &reinterpret_cast<sockaddr_in6&>(peer).sin6_addr);
}

void SetNoDelay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace quarry
