#include "server/ssd/io/io_queue.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/clock.h"

namespace quarry::server {
namespace {

// What direct IO must begin at.
constexpr uint64_t kPage = 4096;

uint64_t Bytes(const IoRequest& request) {
  uint64_t bytes = 0;
  for (const iovec& part : request.parts) bytes += part.iov_len;
  return bytes;
}

IoQueueStats::Direction& DirectionOf(IoRequest::Kind kind, IoQueueStats* stats) {
  switch (kind) {
    case IoRequest::Kind::kRead:
      return stats->reads;
    case IoRequest::Kind::kWrite:
      return stats->writes;
    case IoRequest::Kind::kSync:
      break;
  }
  return stats->syncs;
}

}  // namespace

struct IoQueue::Task {
  explicit Task(IoRequest r) : request(std::move(r)), bytes(Bytes(request)) {}

  // Where to go on: a page that was moved in part is moved again from its begin.
  uint64_t ResumeAt() const {
    const uint64_t over = (request.offset + moved) % kPage;
    return moved - std::min(over, moved);
  }
  // All but the first `skip` bytes.
  IoRequest Rest(uint64_t skip) const {
    IoRequest rest;
    rest.kind = request.kind;
    rest.fd = request.fd;
    rest.offset = request.offset + skip;
    for (const iovec& part : request.parts) {
      const uint64_t skipped = std::min<uint64_t>(skip, part.iov_len);
      skip -= skipped;
      if (skipped == part.iov_len) continue;
      rest.parts.push_back({static_cast<char*>(part.iov_base) + skipped, part.iov_len - skipped});
    }
    return rest;
  }

  const IoRequest request;
  const uint64_t bytes;
  const int64_t begin_ns = Clock::Real()->NowNs();
  uint64_t moved = 0;
  uint64_t resumed_at = 0;  // of what the engine has now
};

IoQueue::IoQueue(std::unique_ptr<IoEngine> engine) : engine_(std::move(engine)) {}

IoQueue::~IoQueue() {
  Drain();
  engine_.reset();  // its threads may still be about to leave OnEnded
}

void IoQueue::Submit(IoRequest request) {
  auto task = std::make_unique<Task>(std::move(request));
  auto& queue = task->request.kind == IoRequest::Kind::kRead ? reads_ : writes_;
  {
    const std::lock_guard lock(mutex_);
    queue.push_back(std::move(task));
    task = NextLocked();
  }
  if (task != nullptr) Start(std::move(task));
}

IoQueue::TaskPtr IoQueue::NextLocked() {
  if (in_flight_ >= engine_->depth() || (reads_.empty() && writes_.empty())) return nullptr;
  const bool write = reads_.empty() || (!writes_.empty() && reads_ahead_ >= kMaxReadsAhead);
  reads_ahead_ = write || writes_.empty() ? 0 : reads_ahead_ + 1;
  auto& queue = write ? writes_ : reads_;
  TaskPtr next = std::move(queue.front());
  queue.pop_front();
  ++in_flight_;
  return next;
}

void IoQueue::Start(TaskPtr task) {
  task->resumed_at = task->ResumeAt();
  IoRequest rest = task->Rest(task->resumed_at);
  rest.done = [this, raw = task.release()](int64_t result) { OnEnded(TaskPtr(raw), result); };
  engine_->Submit(std::move(rest));
}

void IoQueue::OnEnded(TaskPtr task, int64_t result) {
  if (result < 0 || task->request.kind == IoRequest::Kind::kSync) return Finish(std::move(task), result);
  const uint64_t moved = task->resumed_at + static_cast<uint64_t>(result);
  const uint64_t bytes = task->bytes;
  if (moved >= bytes) return Finish(std::move(task), static_cast<int64_t>(bytes));
  // Compared with what there was before, so that the same part of a page, again and again, is
  // the end too.
  if (moved <= task->moved) return Finish(std::move(task), -EIO);
  task->moved = moved;
  Start(std::move(task));
}

void IoQueue::Finish(TaskPtr task, int64_t result) {
  Count(*task, result);
  task->request.done(result);
  task.reset();
  TaskPtr next;
  {
    const std::lock_guard lock(mutex_);
    --in_flight_;
    next = NextLocked();
    if (IdleLocked()) idle_.notify_all();
  }
  // The queue may be gone by now unless there is something to start.
  if (next != nullptr) Start(std::move(next));
}

void IoQueue::Count(const Task& task, int64_t result) {
  const IoRequest::Kind kind = task.request.kind;
  if (result >= 0) {
    IoHistograms& histograms = histograms_[static_cast<size_t>(kind)];
    if (kind != IoRequest::Kind::kSync) histograms.bytes.Record(result);
    histograms.latency.Record(Clock::Real()->NowNs() - task.begin_ns);
  }
  const std::lock_guard lock(mutex_);
  IoQueueStats::Direction& direction = DirectionOf(kind, &stats_);
  ++direction.requests;
  if (result < 0) {
    ++direction.errors;
  } else {
    direction.bytes += static_cast<uint64_t>(result);
  }
}

void IoQueue::Drain() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return IdleLocked(); });
}

IoQueueStats IoQueue::stats() const {
  const std::lock_guard lock(mutex_);
  IoQueueStats stats = stats_;
  stats.in_flight = in_flight_;
  stats.queued = reads_.size() + writes_.size();
  return stats;
}

}  // namespace quarry::server
