#include "server/grpc/put_stream.h"

#include <grpcpp/impl/codegen/proto_utils.h>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "server/grpc/status.h"

namespace quarry::server {

PutStream::PutStream(CacheService* service, StreamLimits* limits, grpc::CallbackServerContext* context,
                     grpc::ByteBuffer* response)
    : service_(service),
      limits_(limits),
      context_(context),
      response_buffer_(response),
      idle_(&limits->idle, context),
      shards_(service, &limits->put_bytes),
      begin_ns_(Clock::Real()->NowNs()) {
  service_->metrics().requests[static_cast<size_t>(Op::kPut)].fetch_add(1, std::memory_order_relaxed);
  absl::Status status = service_->CheckNotDraining();
  if (status.ok()) {
    admitted_ = limits_->puts.Take(1);
    if (!admitted_) {
      status = absl::ResourceExhaustedError(absl::StrCat("puts under way: at most ", limits_->puts.most()));
    }
  }
  if (status.ok()) {
    Read();
  } else {
    End(status);
  }
}

void PutStream::Read() {
  idle_.BeginWait(Clock::Real()->NowNs());
  StartRead(&message_);
}

void PutStream::OnReadDone(bool ok) {
  idle_.EndWait();
  const absl::Status status = ok ? shards_.Take(&message_) : ClientEnded();
  if (!ok || !status.ok()) return End(status);
  Read();
}

absl::Status PutStream::ClientEnded() { return context_->IsCancelled() ? idle_.WhyCancelled() : shards_.CheckWhole(); }

void PutStream::End(const absl::Status& status) {
  shards_.Drop();
  ServiceMetrics& metrics = service_->metrics();
  const auto op = static_cast<size_t>(Op::kPut);
  if (!status.ok()) {
    metrics.errors[op].fetch_add(1, std::memory_order_relaxed);
    return Finish(ToGrpc(status));
  }
  metrics.latency[op].Record(Clock::Real()->NowNs() - begin_ns_);
  bool own_buffer = false;
  Finish(grpc::SerializationTraits<v1::PutResponse>::Serialize(shards_.response(), response_buffer_, &own_buffer));
}

void PutStream::OnDone() {
  if (admitted_) limits_->puts.Give(1);
  delete this;
}

}  // namespace quarry::server
