#include "tests/integration/child.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace quarry::testing {

void Line::Say(const std::string& message) const { send(fd_, message.data(), message.size(), MSG_NOSIGNAL); }

std::string Line::Hear() const {
  std::string message(64 << 10, '\0');
  const ssize_t got = recv(fd_, message.data(), message.size(), 0);
  message.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return message;
}

Child::Child(const std::function<int(const Line&)>& body) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
  std::fflush(nullptr);  // or both would write what is left
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[0]);
    const int status = body(Line(ends[1]));
    std::fflush(nullptr);
    _exit(status);
  }
  close(ends[1]);
  line_ = Line(ends[0]);
}

Child::~Child() {
  if (pid_ > 0) Kill();
  close(line_.fd());
}

void Child::Signal(int signal) const { kill(pid_, signal); }

void Child::Kill() {
  Signal(SIGKILL);
  Wait();
}

int Child::Wait() {
  int status = -1;
  waitpid(std::exchange(pid_, -1), &status, 0);
  return status;
}

}  // namespace quarry::testing
