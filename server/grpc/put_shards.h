// What the messages of a Cache.Put do: shards from gRPC's buffers into slots.
#ifndef QUARRY_SERVER_GRPC_PUT_SHARDS_H_
#define QUARRY_SERVER_GRPC_PUT_SHARDS_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/checksum.h"
#include "quarry/v1/cache.pb.h"
#include "server/cache_service.h"
#include "server/grpc/stream_limits.h"

namespace quarry::server {

// One put. Payload is copied once, from gRPC's buffers into the slot, and summed on the way.
// A shard that is not whole when it goes is refused as cancelled. Not thread-safe.
class PutShards {
 public:
  // Both outlive it. `bytes` bounds the slots that all puts have reserved and not filled.
  PutShards(CacheService* service, Quota* bytes);
  ~PutShards();
  PutShards(const PutShards&) = delete;
  PutShards& operator=(const PutShards&) = delete;

  // The next message, a PutRequest; its bytes are taken. InvalidArgument names the field;
  // then nothing more may come.
  absl::Status Take(grpc::ByteBuffer* message);
  // Whether the client may end here: InvalidArgument says what is missing.
  absl::Status CheckWhole() const;
  // The put is over: what is not whole is given up.
  void Drop() { DropShard(RefusalReason::kCancelled); }

  // One outcome a shard so far.
  const v1::PutResponse& response() const { return response_; }

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

  absl::Status HandleHeader(const v1::PutHeader& header);
  absl::Status BeginShard(v1::PutShard&& message);
  absl::Status CheckShard(const v1::PutShard& message) const;
  absl::Status TakeBytes(const std::vector<grpc::Slice>& slices, size_t skip, size_t bytes);
  void EndShard();
  void CountEnd(transport::TransferStatus status);
  void DropShard(RefusalReason reason);

  CacheService* const service_;
  Quota* const bytes_;
  std::vector<grpc::Slice> slices_;
  const Namespace* ns_ = nullptr;  // from the header
  uint32_t retain_ms_ = 0;
  bool no_ssd_ = false;
  bool no_store_ = false;
  bool shard_open_ = false;
  Shard shard_;
  v1::PutResponse response_;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_GRPC_PUT_SHARDS_H_
