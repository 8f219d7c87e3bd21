// How the parts of a node do: GetHealth's answer, and whether /readyz says yes.
//
// | part      | unhealthy while                                                    | not ready |
// | memory    | one put in a hundred of the last 10 s, or more, was refused for    |           |
// |           | want of room                                                       |           |
// | sessions  | the node drains; --max-sessions are open; connections cannot be    | yes       |
// |           | accepted; a control thread has not come round for 5 s              |           |
// | scheduler | a thread that moves payload has not come round for 5 s; transfers  | yes       |
// |           | have waited for 5 s though nothing moves                           |           |
// | grpc      | as many gets, puts or watches are under way as may be              |           |
// | metrics   | as many HTTP connections are open as may be                        |           |
// | ssd       | a directory takes no writes, after an error; none where there are none|           |
// | integrity | a checksum has failed since the start                              |           |
//
// Not ready is a node to which no new client should be sent, because it would be turned away
// or hang. The other parts cost something, but what is there is still served.
#ifndef QUARRY_SERVER_HEALTH_H_
#define QUARRY_SERVER_HEALTH_H_

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "server/grpc/admin_hooks.h"

namespace quarry::server {

// What is looked at, as of now.
struct HealthInputs {
  struct Use {
    uint64_t now = 0;
    uint64_t most = 1;
  };

  int64_t now_ns = 0;
  bool draining = false;
  // Bytes of the arena.
  Use used;
  uint64_t leased_bytes = 0;
  // Since the start.
  uint64_t refused_puts = 0;  // for want of room
  uint64_t stored_shards = 0;
  uint64_t corrupt = 0;

  Use sessions;
  bool accepting = true;
  // How long a thread has owed an answer, at most: 0 where all answer.
  int64_t control_late_ns = 0;
  int64_t data_late_ns = 0;
  uint64_t transfers_queued = 0;
  uint64_t bytes_in_flight = 0;

  Use gets;
  Use puts;
  Use watches;
  Use http_connections;
  // Of each SSD.
  struct Ssd {
    std::string dir;
    bool writing = true;
    std::string last_error;
  };
  std::vector<Ssd> ssds;
};

// Thread-safe.
class Health {
 public:
  static constexpr int64_t kPeriodNs = 500'000'000;     // between updates
  static constexpr int64_t kWindowNs = 10'000'000'000;  // of the puts that are looked at
  static constexpr int64_t kLateNs = 5'000'000'000;     // of threads and transfers
  static constexpr uint64_t kRefusalsOneIn = 100;

  void Update(const HealthInputs& inputs);
  // As of the last update.
  AdminHooks::Health report() const;
  // The parts for which the node is not ready, with their sentences; empty: it is.
  std::string WhyNotReady() const;

 private:
  struct Puts {
    int64_t at_ns = 0;
    uint64_t refused = 0;
    uint64_t stored = 0;
  };

  AdminHooks::Part Memory(const HealthInputs& inputs);
  AdminHooks::Part Scheduler(const HealthInputs& inputs);

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::deque<Puts> puts_;       // of the window, oldest first
  int64_t stuck_since_ns_ = 0;  // 0: something moves, or nothing waits
  AdminHooks::Health report_;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_HEALTH_H_
