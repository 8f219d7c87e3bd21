// A disk's queue: bounds what is in flight, finishes what the kernel left short, counts.
#ifndef QUARRY_SERVER_SSD_IO_IO_QUEUE_H_
#define QUARRY_SERVER_SSD_IO_IO_QUEUE_H_

#include <array>
#include <condition_variable>
#include <cstddef>
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

// Of what ended without an error. Bytes are of whole requests (a sync has none), and time
// is from Submit to `done`, the wait in the queue included.
struct IoHistograms {
  SizeHistogram bytes;
  LatencyHistogram latency;
};

// Thread-safe. Reads go before writes and syncs, except that when kMaxReadsAhead reads have
// gone before the oldest of these it goes next: so a get does not wait for the spill, nor the
// spill for ever. A sync covers the writes that had ended when it was submitted.
class IoQueue {
 public:
  static constexpr uint32_t kMaxReadsAhead = 16;

  explicit IoQueue(std::unique_ptr<IoEngine> engine);
  // Waits for what is in flight; what is queued is carried out.
  ~IoQueue();

  // `done` gets the whole length (0 of a sync) or -errno: a short transfer is gone on with, and
  // one that does not go on at all (the end of the file) ends with -EIO. Never blocks.
  void Submit(IoRequest request);
  // Waits until nothing is queued or in flight. Not to be called from a `done`.
  void Drain();

  IoQueueStats stats() const;
  // Valid as long as the queue.
  const IoHistograms& histograms(IoRequest::Kind kind) const { return histograms_[static_cast<size_t>(kind)]; }
  absl::string_view engine_name() const { return engine_->name(); }

 private:
  struct Task;
  using TaskPtr = std::unique_ptr<Task>;

  // The next that may start, counted as in flight; or nullptr. Each addition to the queue and
  // each end makes room for one start at most, so that each calls it once.
  TaskPtr NextLocked();
  bool IdleLocked() const { return in_flight_ == 0 && reads_.empty() && writes_.empty(); }
  // Without the lock. Hands to the engine what is still to be moved of the task.
  void Start(TaskPtr task);
  // On a thread of the engine.
  void OnEnded(TaskPtr task, int64_t result);
  void Finish(TaskPtr task, int64_t result);
  void Count(const Task& task, int64_t result);

  std::unique_ptr<IoEngine> engine_;
  std::array<IoHistograms, 3> histograms_;  // by IoRequest::Kind
  mutable std::mutex mutex_;
  // The rest is guarded by mutex_.
  std::condition_variable idle_;
  std::deque<TaskPtr> reads_;
  std::deque<TaskPtr> writes_;  // and syncs
  uint32_t reads_ahead_ = 0;    // of the first in writes_
  uint64_t in_flight_ = 0;
  IoQueueStats stats_;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SSD_IO_IO_QUEUE_H_
