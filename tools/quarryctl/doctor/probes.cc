#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/net/socket.h"
#include "tools/quarryctl/doctor/host.h"

namespace quarry::ctl {
namespace {

constexpr size_t kPatternBytes = 64;
constexpr char kParentsByte = 'p';
constexpr char kChildsByte = 'c';

int ProbeIoUring() {
  io_uring_params params{};
  const UniqueFd ring(static_cast<int>(syscall(SYS_io_uring_setup, 4, &params)));
  return ring ? 0 : errno;
}

int ProbeAio() {
  aio_context_t context = 0;
  if (syscall(SYS_io_setup, 1, &context) != 0) return errno;
  syscall(SYS_io_destroy, context);
  return 0;
}

// In the child: makes its copy of the pattern differ from the parent's, says so, and stays
// until the parent closes its end. Only what is safe after fork.
[[noreturn]] void BeRead(char* pattern, int say, int wait) {
  std::memset(pattern, kChildsByte, kPatternBytes);
  char byte = 0;
  if (write(say, &byte, 1) == 1) {
    while (read(wait, &byte, 1) < 0 && errno == EINTR) {
    }
  }
  _exit(0);
}

int ReadOf(pid_t child, char* pattern) {
  char copy[kPatternBytes] = {};
  iovec local{copy, sizeof copy};
  iovec remote{pattern, kPatternBytes};
  const ssize_t got = process_vm_readv(child, &local, 1, &remote, 1, 0);
  if (got < 0) return errno;
  for (char byte : copy) {
    if (byte != kChildsByte) return EBADMSG;
  }
  return 0;
}

int ProbeProcessVm() {
  char pattern[kPatternBytes];
  std::memset(pattern, kParentsByte, sizeof pattern);
  int up[2];
  int down[2];
  if (pipe(up) != 0) return errno;
  UniqueFd up_read(up[0]);
  UniqueFd up_write(up[1]);
  if (pipe(down) != 0) return errno;
  UniqueFd down_read(down[0]);
  UniqueFd down_write(down[1]);
  const pid_t child = fork();
  if (child < 0) return errno;
  if (child == 0) {
    close(down[1]);
    BeRead(pattern, up[1], down[0]);
  }
  up_write = UniqueFd();
  char byte = 0;
  ssize_t ready = 0;
  do {
    ready = read(up_read.get(), &byte, 1);
  } while (ready < 0 && errno == EINTR);
  const int result = ready == 1 ? ReadOf(child, pattern) : ECHILD;
  down_write = UniqueFd();
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return result;
}

std::optional<uint64_t> FileSystemBytes(const std::string& path) {
  struct statvfs info {};
  if (statvfs(path.c_str(), &info) != 0) return std::nullopt;
  return static_cast<uint64_t>(info.f_blocks) * info.f_frsize;
}

}  // namespace

Probes RealProbes() {
  return {
      .io_uring = ProbeIoUring, .aio = ProbeAio, .process_vm = ProbeProcessVm, .file_system_bytes = FileSystemBytes};
}

}  // namespace quarry::ctl
