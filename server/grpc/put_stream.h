// One Cache.Put call.
#ifndef QUARRY_SERVER_GRPC_PUT_STREAM_H_
#define QUARRY_SERVER_GRPC_PUT_STREAM_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>

#include "absl/status/status.h"
#include "server/cache_service.h"
#include "server/grpc/put_shards.h"
#include "server/grpc/stream_limits.h"

namespace quarry::server {

// Reads the next message when it is done with the last, so a client is held back by flow
// control. Deletes itself when the call is over.
class PutStream final : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  PutStream(CacheService* service, StreamLimits* limits, grpc::CallbackServerContext* context,
            grpc::ByteBuffer* response);

  void OnReadDone(bool ok) override;
  void OnDone() override;

 private:
  void Read();
  absl::Status ClientEnded();
  void End(const absl::Status& status);

  CacheService* const service_;
  StreamLimits* const limits_;
  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const response_buffer_;
  IdleStreams::Stream idle_;
  PutShards shards_;  // one message comes after the other
  const int64_t begin_ns_;
  bool admitted_ = false;
  grpc::ByteBuffer message_;  // as read
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_GRPC_PUT_STREAM_H_
