#include "tools/bench/limit/sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <thread>

namespace limit {

void Die(const char* what) {
  fprintf(stderr, "quarry-bench-limit: %s: %s\n", what, strerror(errno));
  exit(1);
}

// Pacing, as BBR does it, only costs within a host. Before the connection exists: a socket
// that has once paced goes on pacing.
void AvoidPacing(int fd) { setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4); }

int Listen(uint16_t* port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  AvoidPacing(fd);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(fd, 128) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    Die("cannot listen on loopback");
  }
  *port = ntohs(address.sin_port);
  return fd;
}

void SetBuffers(int fd, int buffer_bytes) {
  if (buffer_bytes > 0) {
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof(buffer_bytes));
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof(buffer_bytes));
  }
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

int Connect(uint16_t port, int buffer_bytes) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) Die("socket");
  SetBuffers(fd, buffer_bytes);
  AvoidPacing(fd);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) Die("connect");
  return fd;
}

bool SendAll(int fd, const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

bool ReceiveAll(int fd, void* data, size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = recv(fd, at, bytes, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

char* MapArena(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) Die("cannot map the arena");
  madvise(memory, bytes, MADV_HUGEPAGE);
  memset(memory, 0x5a, bytes);
  return static_cast<char*>(memory);
}

Server StartServer(void (*serve)(int fd, void* context), void* context) {
  uint16_t port = 0;
  const int listener = Listen(&port);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) Die("fork");
  if (child > 0) {
    close(listener);
    return {port, child};
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(0);
  for (;;) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EINTR) continue;
      Die("accept");
    }
    std::thread([fd, serve, context] {
      serve(fd, context);
      close(fd);
    }).detach();
  }
}

void StopServer(const Server& server) {
  kill(server.pid, SIGKILL);
  waitpid(server.pid, nullptr, 0);
}

double NowSeconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace limit
