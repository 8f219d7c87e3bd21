#include "common/transport/shm/peer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace quarry::transport::shm {
namespace {

UniqueFd PidFdOf(int socket, pid_t pid) {
  int fd = -1;
  socklen_t length = sizeof fd;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &length) == 0) {
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    return UniqueFd(fd);
  }
  // Older kernels: by number, which is the peer's as long as it lives.
  if (pid <= 0) return UniqueFd();
  return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

absl::Status Denied(absl::string_view why) { return absl::PermissionDeniedError(why); }

}  // namespace

Peer Peer::Of(int socket) {
  Peer peer;
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return peer;
  peer.pid_ = credentials.pid;
  peer.uid_ = credentials.uid;
  peer.pidfd_ = PidFdOf(socket, peer.pid_);
  return peer;
}

bool Peer::dead() const {
  pollfd entry{pidfd_.get(), POLLIN, 0};
  return pidfd_ && poll(&entry, 1, 0) == 1;
}

absl::Status Peer::Probe(uint64_t address, absl::string_view nonce) const {
  if (pid_ <= 0) return Denied("the client's process is in another PID namespace");
  if (!pidfd_) return Denied("this kernel gives no handle of the client's process");
  if (uid_ != geteuid()) return Denied(absl::StrCat("the client is user ", uid_, ", the server user ", geteuid()));
  std::string seen(nonce.size(), '\0');
  const iovec local{seen.data(), seen.size()};
  const iovec remote{reinterpret_cast<void*>(address), seen.size()};
  const ssize_t got = process_vm_readv(pid_, &local, 1, &remote, 1, 0);
  if (got < 0) return Denied(absl::StrCat("process_vm_readv: ", strerror(errno)));
  if (seen != nonce) return Denied("the client's process is not the one that speaks");
  // Of these two calls one may be refused alone. What is written is what was there.
  if (process_vm_writev(pid_, &local, 1, &remote, 1, 0) != static_cast<ssize_t>(seen.size())) {
    return Denied(absl::StrCat("process_vm_writev: ", strerror(errno)));
  }
  return absl::OkStatus();
}

void AllowPeerToReach(const Peer& server) {
  const UniqueFd file(open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC));
  char scope = '0';
  // 1: only ancestors, and whom the process names. Above it, naming helps nobody.
  if (!file || read(file.get(), &scope, 1) != 1 || scope != '1' || server.pid() <= 0) return;
  prctl(PR_SET_PTRACER, server.pid(), 0, 0, 0);
}

}  // namespace quarry::transport::shm
