// The stream limit: how fast plain TCP sockets move random blocks of one process's arena
// into random places of another's.
#ifndef LIMIT_SOCKET_LIMIT_H_
#define LIMIT_SOCKET_LIMIT_H_

#include <cstddef>
#include <cstdint>

#include "tools/bench/limit/sockets.h"

namespace limit {

struct StreamOptions {
  bool put = false;                 // blocks flow from the client's arena into the server's
  size_t block_bytes = 2 << 20;     // contiguous, in the server's arena
  size_t segment_bytes = 64 << 10;  // pieces in the client's arena
  size_t connections = 2;
  size_t server_arena_bytes = size_t{2} << 30;
  size_t client_arena_bytes = size_t{1} << 30;
  int buffer_bytes = -1;  // SO_SNDBUF and SO_RCVBUF of all sockets; 0: the kernel's tuning; -1: try and take the best
};

class StreamLimit {
 public:
  // Starts the server process and, where asked for, finds the best buffer size.
  explicit StreamLimit(const StreamOptions& options);
  ~StreamLimit();
  // Moves bytes for that long over new connections. GB/s (1e9 bytes).
  double Run(double seconds);
  int buffer_bytes() const { return buffer_bytes_; }

 private:
  double RunWith(double seconds, int buffer_bytes);
  void Calibrate();

  const StreamOptions options_;
  char* server_arena_ = nullptr;  // touched in the child only
  char* client_arena_ = nullptr;
  Server server_;
  int buffer_bytes_ = 0;
  uint64_t rounds_ = 0;
};

}  // namespace limit

#endif  // LIMIT_SOCKET_LIMIT_H_
