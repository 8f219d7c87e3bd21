// One Cache.Get call.
#ifndef QUARRY_SERVER_GRPC_GET_STREAM_H_
#define QUARRY_SERVER_GRPC_GET_STREAM_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "server/cache_service.h"
#include "server/grpc/get_pieces.h"
#include "server/grpc/stream_limits.h"

namespace quarry::server {

// Writes the next message when the last is on its way. Deletes itself when the call is over.
class GetStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  GetStream(CacheService* service, StreamLimits* limits, grpc::CallbackServerContext* context,
            const grpc::ByteBuffer& request);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  struct Loading;  // of a few blocks from an SSD

  absl::Status Begin(const grpc::ByteBuffer& request);
  void Continue();
  void LoadMore();
  void OnLoaded(std::vector<ReadResult> reads);
  void End(const absl::Status& status);

  CacheService* const service_;
  StreamLimits* const limits_;
  IdleStreams::Stream idle_;
  GetPieces pieces_;
  const int64_t begin_ns_;
  bool admitted_ = false;
  grpc::ByteBuffer message_;  // valid while it is written

  std::mutex mutex_;
  bool writing_ = false;
  bool busy_ = false;                 // in LoadMore
  std::shared_ptr<Loading> loading_;  // what is being loaded; it may outlive the stream
  bool cancelled_ = false;
  bool finished_ = false;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_GRPC_GET_STREAM_H_
