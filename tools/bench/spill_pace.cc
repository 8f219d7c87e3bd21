#include "tools/bench/spill_pace.h"

#include <chrono>
#include <utility>

#include "common/clock.h"

namespace quarry::bench {
namespace {

// Less than it takes to write what the server keeps free, and few enough times a second that
// the server's time for them does not matter.
constexpr std::chrono::milliseconds kPeriod(30);
// Of the memory left free or with blocks that are on the SSD. Half of what the server keeps so
// itself: it writes while it has less.
constexpr uint64_t kSpareShare = 32;

}  // namespace

SpillPace::SpillPace(std::string metrics_address, uint64_t capacity_blocks)
    : metrics_address_(std::move(metrics_address)),
      bound_blocks_(capacity_blocks - capacity_blocks / kSpareShare),
      most_blocks_(capacity_blocks / kSpareShare) {}

absl::StatusOr<std::unique_ptr<SpillPace>> SpillPace::Start(const std::string& metrics_address,
                                                            uint64_t capacity_blocks) {
  std::unique_ptr<SpillPace> pace(new SpillPace(metrics_address, capacity_blocks));
  auto counters = FetchSsdCounters(metrics_address);
  if (!counters.ok()) return counters.status();
  pace->seen_ = *std::move(counters);
  pace->watcher_ = std::thread([p = pace.get()] { p->Watch(); });
  return pace;
}

SpillPace::~SpillPace() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (watcher_.joinable()) watcher_.join();
}

void SpillPace::Watch() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!changed_.wait_for(lock, kPeriod, [this] { return stopping_; })) {
    changed_.wait(lock, [this] { return stopping_ || in_span_ || waiting_ != 0; });
    lock.unlock();
    auto counters = FetchSsdCounters(metrics_address_);
    const int64_t now_ns = Clock::Real()->NowNs();
    lock.lock();
    if (!counters.ok()) {
      failed_ = counters.status();
      changed_.notify_all();
      return;
    }
    const bool committed = counters->spilled_bytes != seen_.spilled_bytes;
    seen_ = *std::move(counters);
    if (in_span_ && committed) {
      last_ = Commit{now_ns, seen_};
      if (!first_.has_value()) first_ = last_;
    }
    changed_.notify_all();
  }
}

bool SpillPace::MayTakeLocked(uint64_t blocks) const {
  return taken_blocks_ + blocks <= bound_blocks_ + seen_.spilled_records + seen_.unspilled_blocks;
}

bool SpillPace::Take(uint64_t blocks, bool wait) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (wait) {
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return MayTakeLocked(blocks) || !failed_.ok(); });
    --waiting_;
  }
  if (!failed_.ok() || !MayTakeLocked(blocks)) return false;
  taken_blocks_ += blocks;
  return true;
}

void SpillPace::BeginSpan() {
  const std::lock_guard<std::mutex> lock(mutex_);
  in_span_ = true;
  changed_.notify_all();
  first_.reset();
  last_.reset();
  unspilled_before_ = seen_.unspilled_blocks;
}

SpillPace::Span SpillPace::EndSpan() {
  const std::lock_guard<std::mutex> lock(mutex_);
  in_span_ = false;
  Span span;
  span.unspilled_blocks = seen_.unspilled_blocks - unspilled_before_;
  if (!first_.has_value()) return span;
  span.bytes = last_->counters.spilled_bytes - first_->counters.spilled_bytes;
  span.ns = last_->at_ns - first_->at_ns;
  return span;
}

absl::Status SpillPace::status() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failed_;
}

}  // namespace quarry::bench
