// The blocking exchange at the start of a session's first shared-memory stream, at the client.
#ifndef QUARRY_COMMON_TRANSPORT_SHM_GREETING_H_
#define QUARRY_COMMON_TRANSPORT_SHM_GREETING_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/transport/shm/client_stream.h"

namespace quarry::transport::shm {

struct Greeting {
  bool reaches_process = false;  // the server can read and write any memory of this process
  std::string why_not;
};

// Shows the server the board, and lets it prove that it can reach this process. Not OK: there
// is no shared memory with it.
absl::StatusOr<Greeting> Greet(int fd, const ClientShared& shared, int64_t deadline_ns);

}  // namespace quarry::transport::shm

#endif  // QUARRY_COMMON_TRANSPORT_SHM_GREETING_H_
