#include "tests/unit/transport/shm_peers.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "common/transport/shm/stream.h"
#include "tests/unit/transport/sockets.h"

namespace quarry::transport::shm {

void RawEnd::Send(const Message& message, const std::vector<UniqueFd>& fds) {
  std::string bytes;
  AppendMessage(message, &bytes);
  SendBytes(bytes, fds);
}

void RawEnd::SendBytes(const std::string& bytes, const std::vector<UniqueFd>& fds) {
  if (SendWithFds(fd_.get(), bytes, fds) != static_cast<ssize_t>(bytes.size())) std::abort();
}

bool RawEnd::Receive(Message* message) {
  char header[kHeaderBytes];
  pollfd entry{fd_.get(), POLLIN, 0};
  if (poll(&entry, 1, 60'000) != 1) std::abort();
  iovec piece{header, sizeof header};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 4)];
  msghdr call{};
  call.msg_iov = &piece;
  call.msg_iovlen = 1;
  call.msg_control = control;
  call.msg_controllen = sizeof control;
  const ssize_t got = recvmsg(fd_.get(), &call, MSG_CMSG_CLOEXEC | MSG_WAITALL);
  if (got <= 0) return false;
  const cmsghdr* rights = CMSG_FIRSTHDR(&call);
  for (size_t at = CMSG_LEN(0); rights != nullptr && at + sizeof(int) <= rights->cmsg_len; at += sizeof(int)) {
    int fd;
    std::memcpy(&fd, reinterpret_cast<const char*>(rights) + at, sizeof fd);
    fds_.emplace_back(fd);
  }
  size_t body_bytes = 0;
  if (got != sizeof header || !DecodeMessageHeader(header, message, &body_bytes).ok()) std::abort();
  body_.resize(body_bytes);
  if (!ReadExactly(fd_.get(), body_.data(), body_bytes, SoonNs()).ok()) std::abort();
  message->body = body_;
  return true;
}

UniqueFd Duplicate(int fd) { return UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

UniqueFd Memfd(size_t bytes, bool sealed, bool allocated) {
  UniqueFd fd(memfd_create("quarry-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const auto length = static_cast<off_t>(bytes);
  if (!fd || ftruncate(fd.get(), length) != 0) std::abort();
  // Written: what fallocate has only set aside still counts as a hole.
  const std::string zeros(allocated ? bytes : 0, '\0');
  if (pwrite(fd.get(), zeros.data(), zeros.size(), 0) != static_cast<ssize_t>(zeros.size())) std::abort();
  if (sealed && fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) std::abort();
  return fd;
}

}  // namespace quarry::transport::shm
