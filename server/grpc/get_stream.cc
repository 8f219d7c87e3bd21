#include "server/grpc/get_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "server/grpc/status.h"

namespace quarry::server {

GetStream::GetStream(CacheService* service, StreamLimits* limits, grpc::CallbackServerContext* context,
                     const grpc::ByteBuffer& request)
    : service_(service),
      limits_(limits),
      idle_(&limits->idle, context),
      pieces_(service),
      begin_ns_(Clock::Real()->NowNs()) {
  service_->metrics().requests[static_cast<size_t>(Op::kGet)].fetch_add(1, std::memory_order_relaxed);
  if (absl::Status status = Begin(request); !status.ok()) {
    End(status);
    return;
  }
  Continue();
}

absl::Status GetStream::Begin(const grpc::ByteBuffer& request) {
  if (absl::Status status = service_->CheckNotDraining(); !status.ok()) return status;
  admitted_ = limits_->gets.Take(1);
  if (!admitted_) return absl::ResourceExhaustedError(absl::StrCat("gets under way: at most ", limits_->gets.most()));
  return pieces_.Begin(request);
}

void GetStream::Continue() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (cancelled_) {
    lock.unlock();
    return End(idle_.WhyCancelled());
  }
  if (!pieces_.Next(&message_)) {
    lock.unlock();
    return End(pieces_.status());
  }
  writing_ = true;
  idle_.BeginWait(Clock::Real()->NowNs());
  StartWrite(&message_);
}

void GetStream::OnWriteDone(bool ok) {
  idle_.EndWait();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    writing_ = false;
    cancelled_ = cancelled_ || !ok;
  }
  Continue();
}

void GetStream::OnCancel() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    cancelled_ = true;
    if (writing_) return;  // OnWriteDone follows
  }
  End(idle_.WhyCancelled());
}

void GetStream::End(const absl::Status& status) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (std::exchange(finished_, true)) return;
  }
  ServiceMetrics& metrics = service_->metrics();
  const auto op = static_cast<size_t>(Op::kGet);
  if (status.ok()) {
    const int64_t elapsed_ns = Clock::Real()->NowNs() - begin_ns_;
    metrics.latency[op].Record(elapsed_ns);
    metrics.get_rate.Record(pieces_.sent_bytes(), elapsed_ns);
  } else {
    metrics.errors[op].fetch_add(1, std::memory_order_relaxed);
  }
  Finish(ToGrpc(status));
}

void GetStream::OnDone() {
  if (admitted_) limits_->gets.Give(1);
  delete this;
}

}  // namespace quarry::server
