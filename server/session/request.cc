#include "server/session/request.h"

#include <algorithm>
#include <utility>

#include "common/clock.h"
#include "server/session/session.h"

namespace quarry::server {
namespace {}  // namespace

Request::Request(std::shared_ptr<Session> session, uint64_t id, Op op, uint32_t deadline_ms)
    : session_(std::move(session)),
      id_(id),
      op_(op),
      begin_ns_(Clock::Real()->NowNs()),
      deadline_ns_(begin_ns_ + (deadline_ms == 0 ? kMaxDurationMs : std::min(deadline_ms, kMaxDurationMs)) * kNsPerMs) {
}

void Request::Arm() {
  timer_ = session_->loop()->After(deadline_ns_ - Clock::Real()->NowNs(), [self = weak_from_this()] {
    if (auto request = self.lock()) {
      request->timer_ = 0;
      request->Abort();
    }
  });
}

void Request::Complete() {
  if (timer_ != 0) session_->loop()->CancelTimer(std::exchange(timer_, 0));
  session_->service().metrics().latency[static_cast<int>(op_)].Record(Clock::Real()->NowNs() - begin_ns_);
  session_->Forget(id_);
}

}  // namespace quarry::server
