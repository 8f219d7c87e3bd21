// One Cache.Get call: payload from the arena to the wire, without a copy on the way.
#ifndef QUARRY_SERVER_GRPC_GET_STREAM_H_
#define QUARRY_SERVER_GRPC_GET_STREAM_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <mutex>

#include "absl/status/status.h"
#include "quarry/v1/cache.pb.h"
#include "server/cache_service.h"
#include "server/grpc/request_target.h"
#include "server/grpc/stream_limits.h"

namespace quarry::server {

// Looks up one block at a time, and holds one slot: what a slow client keeps from eviction
// is that, and what its lease covers. Deletes itself when the call is over.
class GetStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  // A piece of payload in one message.
  static constexpr uint64_t kPieceBytes = 1 << 20;

  GetStream(CacheService* service, StreamLimits* limits, grpc::CallbackServerContext* context,
            const grpc::ByteBuffer& request);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  absl::Status Begin(const grpc::ByteBuffer& request);
  void Continue();
  // Of the next message. False: there is none.
  bool Next(grpc::ByteBuffer* message);
  // Takes the next item's slot and range; or says why there is none.
  MissCause OpenItem();
  grpc::ByteBuffer Miss(MissCause cause) const;
  grpc::ByteBuffer Piece();
  void End(const absl::Status& status);

  CacheService* const service_;
  StreamLimits* const limits_;
  IdleStreams::Stream idle_;
  const int64_t begin_ns_;
  bool admitted_ = false;
  uint64_t sent_bytes_ = 0;
  grpc::ByteBuffer message_;  // valid while it is written

  v1::GetRequest request_;
  BlockTarget target_;
  uint32_t item_ = 0;
  SlotRef slot_;  // of the item under way
  int64_t item_begin_ns_ = 0;
  uint64_t offset_ = 0;  // of the next piece
  uint64_t end_ = 0;
  absl::Status failed_;

  std::mutex mutex_;
  bool writing_ = false;
  bool cancelled_ = false;
  bool finished_ = false;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_GRPC_GET_STREAM_H_
