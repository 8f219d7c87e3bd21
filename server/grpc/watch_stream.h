// One Cache.Watch call.
#ifndef QUARRY_SERVER_GRPC_WATCH_STREAM_H_
#define QUARRY_SERVER_GRPC_WATCH_STREAM_H_

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "quarry/v1/cache.pb.h"
#include "server/cache_service.h"
#include "server/event_log.h"
#include "server/grpc/stream_limits.h"

namespace quarry::server {

// Holds a place in the event log and one message: a client that does not read costs that,
// and is told of the gap when it reads again. Deletes itself when the call is over.
class WatchStream final : public grpc::ServerWriteReactor<v1::WatchResponse>, public EventLog::Listener {
 public:
  // Of one message; of the blocks of a snapshot as well.
  static constexpr uint32_t kMaxEvents = 512;

  WatchStream(CacheService* service, Quota* streams, const v1::WatchRequest& request);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void OnEvents() override;

 private:
  absl::Status Begin(const v1::WatchRequest& request);
  bool Wants(const Namespace& ns) const;
  // Writes the next message, if there is anything to say and none is on its way.
  void Continue();
  void FillFromSnapshot();
  void FillFromLog();
  void AddGap(uint64_t lost);
  void AddEvent(const BlockEvent& event, const Namespace& ns);
  void EndLocked(const absl::Status& status);

  CacheService* const service_;
  EventLog& log_;
  Quota* const streams_;
  bool admitted_ = false;

  std::mutex mutex_;
  // The rest is guarded by mutex_.
  std::string tenant_;
  std::string namespace_;                  // empty: all of the tenant
  std::deque<const Namespace*> snapshot_;  // still to be listed
  uint64_t snapshot_cursor_ = 0;           // in the first of them
  bool snapshot_end_due_ = false;
  uint64_t seen_ = 0;     // number of the last event that was read
  bool gap_due_ = false;  // what came before `seen_` is not known
  v1::WatchResponse message_;
  std::vector<BlockEvent> events_;
  bool writing_ = false;
  bool cancelled_ = false;
  bool finished_ = false;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_GRPC_WATCH_STREAM_H_
