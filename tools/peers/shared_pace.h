// Keeps the puts of all connections just ahead of the server's SSD (bench/spill_pace.h).
#ifndef QUARRY_TOOLS_PEERS_SHARED_PACE_H_
#define QUARRY_TOOLS_PEERS_SHARED_PACE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "tools/bench/spill_pace.h"

namespace quarry::peers {

// Thread-safe.
class SharedPace {
 public:
  SharedPace(std::string metrics, std::string grpc) : metrics_(std::move(metrics)), grpc_(std::move(grpc)) {}

  // Before the first put; whoever is first runs put_one, which puts a block.
  absl::Status Start(const std::function<void()>& put_one);
  bool started() const { return started_; }
  // After Start. See SpillPace.
  uint64_t most_blocks() const { return pace_->most_blocks(); }
  bool Take(uint64_t blocks, bool wait) { return pace_->Take(blocks, wait); }

 private:
  const std::string metrics_;
  const std::string grpc_;
  std::mutex mutex_;
  std::atomic<bool> started_{false};
  std::unique_ptr<bench::SpillPace> pace_;  // set once, before started_
};

}  // namespace quarry::peers

#endif  // QUARRY_TOOLS_PEERS_SHARED_PACE_H_
