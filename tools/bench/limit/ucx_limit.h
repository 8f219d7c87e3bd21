// The UCX limit: how fast two processes, with a worker each and nothing else to do, move random
// blocks of one arena into random places of another, or back, by active messages.
#ifndef LIMIT_UCX_LIMIT_H_
#define LIMIT_UCX_LIMIT_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace limit {

struct UcxOptions {
  bool put = false;                 // from the client's places to the server's blocks
  size_t block_bytes = 2 << 20;     // contiguous, in the server's arena; a message each
  size_t segment_bytes = 64 << 10;  // pieces in the client's arena
  size_t window = 16;               // blocks under way
  size_t server_arena_bytes = size_t{2} << 30;
  size_t client_arena_bytes = size_t{1} << 30;
  std::string libucp = "libucp.so.0";
};

class UcxLimit {
 public:
  // Starts the client's process. The lanes are those of UCX_TLS, else posix, self and TCP over loopback.
  explicit UcxLimit(const UcxOptions& options);
  ~UcxLimit();
  const char* version() const;
  // Moves blocks for that long. GB/s (1e9 bytes).
  double Run(double seconds);

 private:
  class End;
  class ServerEnd;
  class ClientEnd;

  ServerEnd* server_ = nullptr;
  int client_pid_ = 0;
};

}  // namespace limit

#endif  // LIMIT_UCX_LIMIT_H_
