// One Cache.Put call: shards from the wire into slots.
#ifndef QUARRY_SERVER_GRPC_PUT_STREAM_H_
#define QUARRY_SERVER_GRPC_PUT_STREAM_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/checksum.h"
#include "quarry/v1/cache.pb.h"
#include "server/cache_service.h"
#include "server/grpc/stream_limits.h"

namespace quarry::server {

// Payload goes from gRPC's buffers into the slot, and is summed on the way. Reads the next
// message when it is done with the last, so a client is held back by flow control. Deletes
// itself when the call is over.
class PutStream final : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  PutStream(CacheService* service, StreamLimits* limits, grpc::CallbackServerContext* context,
            grpc::ByteBuffer* response);

  void OnReadDone(bool ok) override;
  void OnDone() override;

 private:
  // The shard whose bytes are on their way.
  struct Shard {
    v1::PutShard message;
    PutTicket ticket;  // empty: not wanted, its bytes are passed over
    ChunkSummer summer;
    int64_t begin_ns = 0;
    uint64_t received = 0;
    uint64_t reserved = 0;
    v1::PutResponse::Outcome* outcome = nullptr;
  };

  void Read();
  absl::Status Handle();
  absl::Status HandleHeader(const v1::PutHeader& header);
  absl::Status BeginShard(v1::PutShard&& message);
  absl::Status CheckShard(const v1::PutShard& message) const;
  absl::Status TakeBytes(const std::vector<grpc::Slice>& slices, size_t skip, size_t bytes);
  void EndShard();
  void CountEnd(transport::TransferStatus status);
  void DropShard(RefusalReason reason);
  absl::Status ClientEnded();
  void End(const absl::Status& status);

  CacheService* const service_;
  StreamLimits* const limits_;
  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const response_buffer_;
  IdleStreams::Stream idle_;
  const int64_t begin_ns_;
  bool admitted_ = false;
  grpc::ByteBuffer message_;  // as read
  std::vector<grpc::Slice> slices_;

  const Namespace* ns_ = nullptr;  // from the header
  uint32_t retain_ms_ = 0;
  bool no_ssd_ = false;
  bool no_store_ = false;
  bool shard_open_ = false;
  Shard shard_;
  v1::PutResponse response_;  // all calls come one after the other: reads are
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_GRPC_PUT_STREAM_H_
