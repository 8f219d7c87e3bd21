// Keeps puts just ahead of the SSD: memory is always full of blocks that are still to be
// written, and none is evicted before it is.
#ifndef QUARRY_TOOLS_BENCH_SPILL_PACE_H_
#define QUARRY_TOOLS_BENCH_SPILL_PACE_H_

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/bench/ssd_counters.h"

namespace quarry::bench {

// Looks at the server's metrics over and over while someone waits, and within a span: what that
// costs the server is not to be part of anything else. Thread-safe.
class SpillPace {
 public:
  // Commits of the SSD, the first and the last that were seen of a time: what lies between them
  // was written while writing went on all the time.
  struct Span {
    uint64_t bytes = 0;
    int64_t ns = 0;
    uint64_t unspilled_blocks = 0;
  };

  // Every block that was ever put went through Take; `capacity_blocks` fit into memory.
  static absl::StatusOr<std::unique_ptr<SpillPace>> Start(const std::string& metrics_address, uint64_t capacity_blocks);
  ~SpillPace();

  // So many at most may be taken together: with more, puts would wait for the SSD to take blocks,
  // and the SSD for puts to need their room.
  uint64_t most_blocks() const { return most_blocks_; }
  // Whether so many more blocks may be put now. With `wait` it waits until they may; false then
  // only after an error.
  bool Take(uint64_t blocks, bool wait);
  void BeginSpan();
  Span EndSpan();
  absl::Status status();

 private:
  SpillPace(std::string metrics_address, uint64_t capacity_blocks);
  void Watch();
  bool MayTakeLocked(uint64_t blocks) const;

  const std::string metrics_address_;
  const uint64_t bound_blocks_;  // in memory alone
  const uint64_t most_blocks_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // The rest is guarded by mutex_.
  bool stopping_ = false;
  absl::Status failed_;
  uint64_t taken_blocks_ = 0;
  uint32_t waiting_ = 0;
  SsdCounters seen_;
  struct Commit {
    int64_t at_ns;
    SsdCounters counters;
  };
  bool in_span_ = false;
  std::optional<Commit> first_, last_;
  uint64_t unspilled_before_ = 0;
  std::thread watcher_;
};

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_SPILL_PACE_H_
