// The messages that answer a Cache.Get: payload from the arena to the wire, without a copy on
// the way.
#ifndef QUARRY_SERVER_GRPC_GET_PIECES_H_
#define QUARRY_SERVER_GRPC_GET_PIECES_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "quarry/v1/cache.pb.h"
#include "server/cache_service.h"
#include "server/grpc/request_target.h"

namespace quarry::server {

// One get. Looks up one block at a time, and holds one slot, or those of a few blocks that came
// from an SSD together: what a slow client keeps from eviction is that, and what its lease
// covers. Not thread-safe.
class GetPieces {
 public:
  // A piece of payload in one message.
  static constexpr uint64_t kPieceBytes = 2 << 20;

  // `service` outlives it.
  explicit GetPieces(CacheService* service) : service_(service) {}

  // Errors as cache.proto says. `request` is a GetRequest.
  absl::Status Begin(const grpc::ByteBuffer& request);
  enum class Step {
    kMessage,  // the next message, a GetResponse, valid while it is written
    kLoad,     // the next blocks are on an SSD: Load, then Loaded
    kEnd,      // there is none; status() says whether all was well
  };
  Step Next(grpc::ByteBuffer* message);
  // Brings the next blocks: `done` is called for each of items 0 to the returned number - 1.
  size_t Load(LoadDone done);
  // What came of it, by item.
  void Loaded(std::vector<ReadResult> reads);
  const absl::Status& status() const { return failed_; }
  uint64_t sent_bytes() const { return sent_bytes_; }
  // Whether blocks came from an SSD.
  bool any_loaded() const { return cold_bytes_ != 0; }

 private:
  // What is sent and what is loaded at once: as many blocks as have so many bytes.
  static constexpr uint64_t kLoadBytes = 8 << 20;

  // Takes the slot's range of the item.
  void OpenItem(SlotRef slot);
  grpc::ByteBuffer Miss(MissCause cause) const;
  grpc::ByteBuffer Piece();

  CacheService* const service_;
  v1::GetRequest request_;
  BlockTarget target_;
  uint32_t item_ = 0;
  SlotRef slot_;                   // of the item under way
  std::deque<ReadResult> loaded_;  // of the items from item_ on
  uint64_t cold_bytes_ = 0;        // payload of the block that has to be loaded
  int64_t item_begin_ns_ = 0;
  uint64_t offset_ = 0;  // of the next piece
  uint64_t end_ = 0;
  uint64_t sent_bytes_ = 0;
  absl::Status failed_;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_GRPC_GET_PIECES_H_
