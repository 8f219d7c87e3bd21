#include "server/dram/reuse_distance.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace quarry::server {
namespace {

constexpr double kHashes = 18446744073709551616.0;  // 2^64
// Places for each block that is followed: so rebuilding is rare.
constexpr uint32_t kPlacesPerBlock = 2;
// Of what is followed, the share that goes when the threshold falls.
constexpr size_t kDropDenominator = 8;

uint64_t ThresholdOf(double sample_rate) {
  if (sample_rate >= 1) return std::numeric_limits<uint64_t>::max();
  return static_cast<uint64_t>(std::max(0.0, sample_rate) * kHashes);
}

}  // namespace

ReuseDistance::ReuseDistance(const ReuseDistanceOptions& options)
    : options_(options),
      step_bytes_(std::max<uint64_t>(1, (options.max_capacity_bytes + kSteps - 1) / kSteps)),
      threshold_(ThresholdOf(options.sample_rate)),
      places_(size_t{kPlacesPerBlock} * options.max_followed),
      sums_(places_.size() + 1),
      uses_by_steps_(kSteps + 2) {
  by_hash_.reserve(options.max_followed + 1);
}

void ReuseDistance::Use(absl::Span<const uint64_t> followed, uint64_t uses) {
  uses_.fetch_add(uses, std::memory_order_relaxed);
  if (followed.empty()) return;
  std::lock_guard<std::mutex> lock(mutex_);
  // All are looked up before any of them moves, as a match does.
  for (const uint64_t hash : followed) {
    if (Follows(hash)) uses_by_steps_[StepsNeededLocked(hash)] += WeightLocked();
  }
  for (auto hash = followed.rbegin(); hash != followed.rend(); ++hash) {
    const auto it = by_hash_.find(*hash);
    if (it != by_hash_.end()) RenewLocked(*hash, places_[it->second].bytes);
  }
}

void ReuseDistance::StoreFollowed(uint64_t hash, uint64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!Follows(hash)) return;
  const auto it = by_hash_.find(hash);
  if (bytes == 0) {
    if (it == by_hash_.end()) return;
    bytes = places_[it->second].bytes;
  }
  RenewLocked(hash, bytes);
  TrimLocked();
  if (by_hash_.size() > options_.max_followed) LowerThresholdLocked();
}

void ReuseDistance::ForgetFollowed(uint64_t hash) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = by_hash_.find(hash);
  if (it == by_hash_.end()) return;
  VacateLocked(it->second);
  by_hash_.erase(it);
}

double ReuseDistance::MissesAt(uint64_t capacity_bytes) const {
  const uint64_t steps = std::min(kSteps, capacity_bytes / step_bytes_ + (capacity_bytes % step_bytes_ != 0 ? 1 : 0));
  std::lock_guard<std::mutex> lock(mutex_);
  return std::accumulate(uses_by_steps_.begin() + static_cast<ptrdiff_t>(steps) + 1, uses_by_steps_.end(), 0.0);
}

uint64_t ReuseDistance::followed() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return by_hash_.size();
}

uint64_t ReuseDistance::memory_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  // A byte of the hash map's own for each of its places.
  return sizeof *this + places_.size() * sizeof(Place) + sums_.size() * sizeof(uint64_t) +
         by_hash_.capacity() * (sizeof(std::pair<uint64_t, uint32_t>) + 1) + uses_by_steps_.size() * sizeof(double);
}

double ReuseDistance::WeightLocked() const { return kHashes / static_cast<double>(threshold()); }

uint64_t ReuseDistance::StepsNeededLocked(uint64_t hash) const {
  const auto it = by_hash_.find(hash);
  if (it == by_hash_.end()) return kSteps + 1;
  const uint64_t own_bytes = places_[it->second].bytes;
  const uint64_t newer_bytes = bytes_ - BytesBeforeLocked(it->second) - own_bytes;
  const double needed = static_cast<double>(newer_bytes) * WeightLocked() + static_cast<double>(own_bytes);
  const double steps = std::ceil(needed / static_cast<double>(step_bytes_));
  return steps > static_cast<double>(kSteps) ? kSteps + 1 : static_cast<uint64_t>(steps);
}

void ReuseDistance::RenewLocked(uint64_t hash, uint64_t bytes) {
  if (next_ == places_.size()) RebuildLocked();
  const auto [it, is_new] = by_hash_.try_emplace(hash, next_);
  if (!is_new) {
    VacateLocked(it->second);
    it->second = next_;
  }
  places_[next_] = {hash, bytes};
  AddBytesLocked(next_, bytes);
  bytes_ += bytes;
  ++next_;
}

void ReuseDistance::VacateLocked(uint32_t place) {
  const uint64_t bytes = places_[place].bytes;
  places_[place].bytes = 0;
  AddBytesLocked(place, uint64_t{0} - bytes);
  bytes_ -= bytes;
}

void ReuseDistance::TrimLocked() {
  while (bytes_ != 0) {
    while (places_[oldest_].bytes == 0) ++oldest_;
    if (StepsNeededLocked(places_[oldest_].hash) <= kSteps) return;
    by_hash_.erase(places_[oldest_].hash);
    VacateLocked(oldest_);
  }
}

void ReuseDistance::LowerThresholdLocked() {
  std::vector<uint64_t> hashes;
  hashes.reserve(by_hash_.size());
  for (const auto& [hash, place] : by_hash_) hashes.push_back(hash);
  const auto first_dropped = hashes.end() - static_cast<ptrdiff_t>(hashes.size() / kDropDenominator);
  std::nth_element(hashes.begin(), first_dropped, hashes.end());
  threshold_.store(*first_dropped, std::memory_order_relaxed);
  RebuildLocked();
}

void ReuseDistance::RebuildLocked() {
  uint32_t kept = 0;
  by_hash_.clear();
  by_hash_.reserve(options_.max_followed + 1);
  for (uint32_t place = oldest_; place < next_; ++place) {
    const Place moved = places_[place];
    if (moved.bytes == 0 || !Follows(moved.hash)) continue;
    by_hash_.emplace(moved.hash, kept);
    places_[kept++] = moved;
  }
  next_ = kept;
  oldest_ = 0;
  bytes_ = 0;
  std::fill(sums_.begin(), sums_.end(), 0);
  for (uint32_t place = 0; place < next_; ++place) {
    AddBytesLocked(place, places_[place].bytes);
    bytes_ += places_[place].bytes;
  }
}

// The tree counts from 1.
void ReuseDistance::AddBytesLocked(uint32_t place, uint64_t bytes) {
  for (size_t i = size_t{place} + 1; i < sums_.size(); i += i & (~i + 1)) sums_[i] += bytes;
}

uint64_t ReuseDistance::BytesBeforeLocked(uint32_t place) const {
  uint64_t bytes = 0;
  for (size_t i = place; i > 0; i &= i - 1) bytes += sums_[i];
  return bytes;
}

}  // namespace quarry::server
