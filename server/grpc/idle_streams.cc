#include "server/grpc/idle_streams.h"

#include <grpc/grpc.h>

#include "absl/strings/str_cat.h"
#include "common/units.h"

namespace quarry::server {

IdleStreams::Stream::Stream(IdleStreams* all, grpc::CallbackServerContext* context)
    : all_(all), call_(context->c_call()) {
  std::lock_guard<std::mutex> lock(all_->mutex_);
  all_->streams_.insert(this);
}

IdleStreams::Stream::~Stream() {
  std::lock_guard<std::mutex> lock(all_->mutex_);
  all_->streams_.erase(this);
}

absl::Status IdleStreams::Stream::WhyCancelled() const {
  if (ended_.load(std::memory_order_acquire)) return absl::DeadlineExceededError(all_->message_);
  return absl::CancelledError("by the client");
}

IdleStreams::IdleStreams(int64_t limit_ns)
    : limit_ns_(limit_ns),
      message_(absl::StrCat("idle: the client did nothing for ", FormatDuration(limit_ns),
                            ", the limit of a stream (--grpc-stream-idle)")) {}

std::vector<grpc_call*> IdleStreams::TakeIdle(int64_t now_ns) {
  std::vector<grpc_call*> calls;
  std::lock_guard<std::mutex> lock(mutex_);
  for (Stream* stream : streams_) {
    const int64_t since_ns = stream->waits_since_ns_.load(std::memory_order_acquire);
    if (since_ns > now_ns - limit_ns_ || stream->ended_.exchange(true, std::memory_order_acq_rel)) continue;
    grpc_call_ref(stream->call_);
    calls.push_back(stream->call_);
  }
  return calls;
}

void IdleStreams::EndIdle(int64_t now_ns) {
  // Without the lock: a reactor may hear of it, and go, before the cancelling returns.
  for (grpc_call* call : TakeIdle(now_ns)) {
    // Not by Finish: a status waits for payload to be taken, and this client takes none.
    grpc_call_cancel_with_status(call, GRPC_STATUS_DEADLINE_EXCEEDED, message_.c_str(), nullptr);
    grpc_call_unref(call);
  }
}

}  // namespace quarry::server
