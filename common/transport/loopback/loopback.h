// Both ends of a data path in one process, moved by hand: nothing happens but in Step, so
// a test decides what has been moved when a request is cancelled or withdrawn. Unlike TCP,
// the server's end touches the client's memory, so a withdrawn request can be held.
#ifndef QUARRY_COMMON_TRANSPORT_LOOPBACK_LOOPBACK_H_
#define QUARRY_COMMON_TRANSPORT_LOOPBACK_LOOPBACK_H_

#include <deque>
#include <memory>
#include <mutex>

#include "common/transport/chunk_verifier.h"
#include "common/transport/exposed_table.h"
#include "common/transport/transport.h"

namespace quarry::transport::loopback {

// Thread-safe, but Step, and Close of the server's end, from one thread at a time.
class LoopbackLink {
 public:
  static constexpr size_t kStepBytes = 64 << 10;

  LoopbackLink();
  ~LoopbackLink();

  // The two ends; they belong to the link.
  ServerChannel& server();
  ClientChannel& client();

  // Moves at most kStepBytes of the oldest transfer. False: nothing to do.
  bool Step();
  void RunUntilIdle();

 private:
  class ServerEnd;
  class ClientEnd;

  // The transfer being moved.
  struct Active {
    std::unique_ptr<Transfer> transfer;
    std::shared_ptr<ExposedRequest> exposed;
    size_t moved = 0;
  };

  void Begin(std::unique_ptr<Transfer> transfer);
  void End(TransferStatus status);
  bool Verify();
  void CancelActiveLocked(uint64_t request);

  ExposedTable table_;
  std::mutex mutex_;
  std::deque<std::unique_ptr<Transfer>> queue_;  // guarded by mutex_
  bool closed_ = false;                          // guarded by mutex_
  uint64_t active_request_ = 0;                  // guarded by mutex_: of the active transfer, or the last
  bool active_cancelled_ = false;                // guarded by mutex_
  Active active_;
  std::unique_ptr<ServerEnd> server_;
  std::unique_ptr<ClientEnd> client_;
};

}  // namespace quarry::transport::loopback

#endif  // QUARRY_COMMON_TRANSPORT_LOOPBACK_LOOPBACK_H_
