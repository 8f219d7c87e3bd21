#include "tools/peers/shared_pace.h"

#include "tools/bench/server_stats.h"

namespace quarry::peers {

absl::Status SharedPace::Start(const std::function<void()>& put_one) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (started_) return absl::OkStatus();
  put_one();
  const auto stats = bench::FetchServerStats(grpc_);
  if (!stats.ok()) return stats.status();
  auto pace = bench::SpillPace::Start(metrics_, stats->capacity_slots);
  if (!pace.ok()) return pace.status();
  if ((*pace)->most_blocks() == 0) return absl::InvalidArgumentError("the server's memory is too small");
  (*pace)->Take(1, true);
  pace_ = *std::move(pace);
  started_ = true;
  return absl::OkStatus();
}

}  // namespace quarry::peers
