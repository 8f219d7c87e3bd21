// The messages that answer a Cache.Get: payload from the arena to the wire, without a copy on
// the way.
#ifndef QUARRY_SERVER_GRPC_GET_PIECES_H_
#define QUARRY_SERVER_GRPC_GET_PIECES_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>

#include "absl/status/status.h"
#include "quarry/v1/cache.pb.h"
#include "server/cache_service.h"
#include "server/grpc/request_target.h"

namespace quarry::server {

// One get. Looks up one block at a time, and holds one slot: what a slow client keeps from
// eviction is that, and what its lease covers. Not thread-safe.
class GetPieces {
 public:
  // A piece of payload in one message.
  static constexpr uint64_t kPieceBytes = 2 << 20;

  // `service` outlives it.
  explicit GetPieces(CacheService* service) : service_(service) {}

  // Errors as cache.proto says. `request` is a GetRequest.
  absl::Status Begin(const grpc::ByteBuffer& request);
  // The next message, a GetResponse, valid while it is written. False: there is none, and
  // status() says whether that is the end.
  bool Next(grpc::ByteBuffer* message);
  const absl::Status& status() const { return failed_; }
  uint64_t sent_bytes() const { return sent_bytes_; }

 private:
  // Takes the next item's slot and range; or says why there is none.
  MissCause OpenItem();
  grpc::ByteBuffer Miss(MissCause cause) const;
  grpc::ByteBuffer Piece();

  CacheService* const service_;
  v1::GetRequest request_;
  BlockTarget target_;
  uint32_t item_ = 0;
  SlotRef slot_;  // of the item under way
  int64_t item_begin_ns_ = 0;
  uint64_t offset_ = 0;  // of the next piece
  uint64_t end_ = 0;
  uint64_t sent_bytes_ = 0;
  absl::Status failed_;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_GRPC_GET_PIECES_H_
