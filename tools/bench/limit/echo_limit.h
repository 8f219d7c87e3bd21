// The round-trip limit: how fast plain TCP sockets answer a request of some bytes by a
// reply of some bytes.
#ifndef LIMIT_ECHO_LIMIT_H_
#define LIMIT_ECHO_LIMIT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tools/bench/limit/sockets.h"

namespace limit {

struct EchoOptions {
  size_t request_bytes = 16 << 10;
  size_t reply_bytes = 600;
  size_t connections = 1;
};

class EchoLimit {
 public:
  // Starts the server process and connects to it.
  explicit EchoLimit(const EchoOptions& options);
  ~EchoLimit();
  // Latencies in nanoseconds of the round trips of that time, sorted.
  std::vector<uint32_t> Run(double seconds);

 private:
  const EchoOptions options_;
  Server server_;
  std::vector<int> fds_;
};

}  // namespace limit

#endif  // LIMIT_ECHO_LIMIT_H_
