// A disk's queue: bounds what is in flight, finishes what the kernel left short, counts.
#ifndef QUARRY_SERVER_SSD_IO_IO_QUEUE_H_
#define QUARRY_SERVER_SSD_IO_IO_QUEUE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "server/metrics/histogram.h"
#include "server/ssd/io/io_engine.h"

namespace quarry::server {

struct IoQueueStats {
  struct Direction {
    uint64_t requests = 0;  // ended
    uint64_t bytes = 0;
    uint64_t errors = 0;
  };
  Direction reads, writes, syncs;
  uint64_t in_flight = 0;
  uint64_t queued = 0;
};

// Thread-safe. Reads go before writes, except that a write which has waited for
// kMaxReadsAhead reads goes next: so a get does not wait for the spill, nor the spill for ever.
class IoQueue {
 public:
  static constexpr uint32_t kMaxReadsAhead = 16;

  explicit IoQueue(std::unique_ptr<IoEngine> engine);
  // Waits for what is in flight; what is queued is carried out.
  ~IoQueue();

  // `done` gets the whole length or -errno: a short transfer is gone on with, and one that
  // does not go on at all (the end of the file) ends with -EIO. Never blocks.
  void Submit(IoRequest request);
  // Waits until nothing is queued or in flight.
  void Drain();

  IoQueueStats stats() const;
  absl::string_view engine_name() const;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SSD_IO_IO_QUEUE_H_
