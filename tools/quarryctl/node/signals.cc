#include "tools/quarryctl/node/signals.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace quarry::ctl {
namespace {

constexpr int64_t kNsPerS = 1'000'000'000;

int Checked(int fd) {
  if (fd >= 0) return fd;
  std::perror("quarryctl: signals");  // out of descriptors: nothing else would work either
  std::abort();
}

bool IsIgnored(int number) {
  struct sigaction action {};
  return sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

// 0: none is there.
int Next(int fd) {
  signalfd_siginfo info{};
  return read(fd, &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

}  // namespace

std::vector<int> StopSignals() { return {SIGINT, SIGTERM, SIGHUP}; }
bool IsStop(int signal) { return signal == SIGINT || signal == SIGTERM || signal == SIGHUP; }

Signals::Signals(const std::vector<int>& numbers) {
  sigemptyset(&set_);
  for (const int number : numbers) {
    if (!IsIgnored(number)) sigaddset(&set_, number);
  }
  pthread_sigmask(SIG_BLOCK, &set_, &before_);
  signal_fd_ = Checked(signalfd(-1, &set_, SFD_NONBLOCK | SFD_CLOEXEC));
  wake_fd_ = Checked(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
}

Signals::~Signals() {
  while (Next(signal_fd_) != 0) {
  }
  close(signal_fd_);
  close(wake_fd_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int Signals::Wait(int64_t timeout_ns) {
  pollfd fds[] = {{signal_fd_, POLLIN, 0}, {wake_fd_, POLLIN, 0}};
  const timespec timeout{timeout_ns / kNsPerS, timeout_ns % kNsPerS};
  if (ppoll(fds, 2, &timeout, nullptr) <= 0) return 0;
  if (const int number = Next(signal_fd_); number != 0) return number;
  uint64_t count = 0;
  if (read(wake_fd_, &count, sizeof count) < 0 && errno != EAGAIN) std::perror("quarryctl: signals");
  return 0;
}

bool Signals::Stopped() {
  while (const int number = Next(signal_fd_)) {
    if (IsStop(number)) return true;
  }
  return false;
}

void Signals::Wake() {
  const uint64_t one = 1;
  if (write(wake_fd_, &one, sizeof one) < 0) std::perror("quarryctl: signals");
}

}  // namespace quarry::ctl
