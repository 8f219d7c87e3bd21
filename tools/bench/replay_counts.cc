#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "tools/bench/replay.h"

namespace quarry::bench {

void LoadEstimates::Add(double estimated, double taken) {
  constexpr double kClose = 0.25;
  ++gets;
  if (std::abs(estimated - taken) <= kClose * taken) ++close;
  estimated_seconds += estimated;
  taken_seconds += taken;
}

double ReplaySsd::write_amplification() const {
  if (payload_bytes == 0) return 0;
  return static_cast<double>(counters.device_bytes + counters.catalog_bytes) / static_cast<double>(payload_bytes);
}

uint64_t ReplaySsd::late_blocks() const {
  return counters.unspilled_blocks - std::min(counters.unspilled_blocks, counters.over_budget_blocks);
}

double ReplaySsd::over_provisioning() const {
  if (counters.live_bytes == 0) return 0;
  return static_cast<double>(counters.size_bytes) / static_cast<double>(counters.live_bytes) - 1;
}

void ReplayCounts::AddError(const std::string& what) {
  if (errors++ == 0) first_error = what;
}

void ReplayCounts::Merge(const ReplayCounts& other) {
  requests += other.requests;
  hits.blocks += other.hits.blocks;
  hits.hit_blocks += other.hits.hit_blocks;
  hits.tokens += other.hits.tokens;
  hits.hit_tokens += other.hits.hit_tokens;
  ssd_hit_blocks += other.ssd_hit_blocks;
  got_bytes += other.got_bytes;
  put_bytes += other.put_bytes;
  stored_blocks += other.stored_blocks;
  already_there_blocks += other.already_there_blocks;
  for (int i = 0; i < kMissCauses; ++i) first_misses[i] += other.first_misses[i];
  for (int i = 0; i < kMissCauses; ++i) get_misses[i] += other.get_misses[i];
  for (int i = 0; i < kRefusalReasons; ++i) refusals[i] += other.refusals[i];
  errors += other.errors;
  wrong_bytes += other.wrong_bytes;
  if (first_error.empty()) first_error = other.first_error;
  estimates.gets += other.estimates.gets;
  estimates.close += other.estimates.close;
  estimates.estimated_seconds += other.estimates.estimated_seconds;
  estimates.taken_seconds += other.estimates.taken_seconds;
  match.Merge(other.match);
  get.Merge(other.get);
  put.Merge(other.put);
  late.Merge(other.late);
}

uint64_t ReplayCounts::refused() const {
  return std::accumulate(std::begin(refusals), std::end(refusals), uint64_t{0});
}

uint64_t ReplayCounts::missed_gets() const {
  return std::accumulate(std::begin(get_misses), std::end(get_misses), uint64_t{0});
}

}  // namespace quarry::bench
