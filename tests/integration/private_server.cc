#include "tests/integration/private_server.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace quarry::testing {

PrivateServer::PrivateServer(const std::string& memory, const std::string& transfer) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(ends[1], STDOUT_FILENO);
    execl(QUARRYD, QUARRYD, "--memory", memory.c_str(), "--listen-transfer", transfer.c_str(), "--listen-grpc",
          "127.0.0.1:0", "--listen-metrics", "127.0.0.1:0", "--socket", "none", "--log-level", "warn", nullptr);
    _exit(127);
  }
  close(ends[1]);
  stdout_ = ends[0];
  std::string line;
  for (char c; read(stdout_, &c, 1) == 1 && c != '\n';) line += c;
  const std::string key = "transfer=";
  const size_t begin = line.find(key);
  if (begin == std::string::npos) {
    std::fprintf(stderr, "quarryd is not ready: '%s'\n", line.c_str());
    std::abort();
  }
  address_ = line.substr(begin + key.size(), line.find(' ', begin) - begin - key.size());
}

PrivateServer::~PrivateServer() {
  if (pid_ > 0) Kill();
  close(stdout_);
}

void PrivateServer::Signal(int signal) const { kill(pid_, signal); }

int PrivateServer::Wait() {
  int status = -1;
  waitpid(std::exchange(pid_, -1), &status, 0);
  return status;
}

void PrivateServer::Kill() {
  Signal(SIGKILL);
  Wait();
}

int PrivateServer::Stop() {
  Signal(SIGTERM);
  return Wait();
}

}  // namespace quarry::testing
