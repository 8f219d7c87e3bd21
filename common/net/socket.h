// Sockets: addresses, listening, dialling, and exact blocking reads and writes with a
// deadline for handshakes.
#ifndef QUARRY_COMMON_NET_SOCKET_H_
#define QUARRY_COMMON_NET_SOCKET_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace quarry {

// An owned file descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd();
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

struct HostPort {
  std::string host;  // without brackets
  uint16_t port = 0;
};

// "host:port", "[v6]:port". InvalidArgument says what is wrong.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view address);
std::string FormatHostPort(const HostPort& address);

// Non-blocking listening socket, SO_REUSEADDR, port 0 picks one. `bound` gets the address
// in force. Unavailable when the address is in use.
absl::StatusOr<UniqueFd> ListenTcp(const HostPort& address, HostPort* bound);
// A Unix socket at `path` (mode 0600); a stale one that nobody listens on is replaced.
absl::StatusOr<UniqueFd> ListenUnix(const std::string& path);

// Connected, non-blocking, close-on-exec, TCP_NODELAY. `address` as ParseHostPort takes
// it, or "unix:PATH". Tries every address of the name until `deadline_ns` (Clock::Real), or
// ends with Cancelled once `interrupt_fd` can be read (-1: there is none). Looking up a name
// takes as long as the system's resolver does.
absl::StatusOr<UniqueFd> Dial(absl::string_view address, int64_t deadline_ns, int interrupt_fd = -1);

// The whole of `data`, or exactly `bytes`, before the deadline; the socket is
// non-blocking. Unavailable when the peer closes.
absl::Status WriteAll(int fd, absl::string_view data, int64_t deadline_ns);
absl::Status ReadExactly(int fd, void* data, size_t bytes, int64_t deadline_ns);

// Both buffers bounded, so that what is in flight on a data stream stays in cache.
void SetSocketBuffers(int fd, int send_bytes, int receive_bytes);
void SetNoDelay(int fd);

bool IsUnixSocket(int fd);
// Whether the peer of a connection is on this host, as far as its address tells.
bool IsWithinHost(int fd);

absl::Status ErrnoStatus(int error, absl::string_view what);

}  // namespace quarry

#endif  // QUARRY_COMMON_NET_SOCKET_H_
