// Plain sockets for the limit programs: loopback connections and exact reads and writes.
// Failures of the machine (no sockets, no memory) end the program with a message.
#ifndef LIMIT_SOCKETS_H_
#define LIMIT_SOCKETS_H_

#include <cstddef>
#include <cstdint>

namespace limit {

[[noreturn]] void Die(const char* what);

// A listening socket on 127.0.0.1, on a port that the kernel picks.
int Listen(uint16_t* port);
// Blocking, TCP_NODELAY. buffer_bytes 0 leaves the kernel's own tuning on.
int Connect(uint16_t port, int buffer_bytes);
void SetBuffers(int fd, int buffer_bytes);

// False when the peer has closed or the connection failed.
bool SendAll(int fd, const void* data, size_t bytes);
bool ReceiveAll(int fd, void* data, size_t bytes);

// Zeroed memory, faulted in, in huge pages where the kernel gives them.
char* MapArena(size_t bytes);

// Runs serve(fd) on a thread of its own for every connection, in a child process that
// dies with this one.
struct Server {
  uint16_t port = 0;
  int pid = 0;
};
Server StartServer(void (*serve)(int fd, void* context), void* context);
void StopServer(const Server& server);

double NowSeconds();

// xorshift64*: cheap enough not to be measured.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  uint64_t Below(uint64_t bound) {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return (state_ * 0x2545F4914F6CDD1Du >> 16) % bound;
  }

 private:
  uint64_t state_;
};

}  // namespace limit

#endif  // LIMIT_SOCKETS_H_
