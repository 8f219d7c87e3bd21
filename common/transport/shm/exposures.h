// The requests that a client exposes, and who may still be touching the buffers of each: a
// thread of this process, the server through shared memory, or data streams.
#ifndef QUARRY_COMMON_TRANSPORT_SHM_EXPOSURES_H_
#define QUARRY_COMMON_TRANSPORT_SHM_EXPOSURES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "common/transport/shm/board.h"
#include "common/transport/transport.h"

namespace quarry::transport::shm {

// Thread-safe. Callbacks are called without the lock.
class Exposures {
 public:
  explicit Exposures(ClientBoard* board) : board_(board) {}

  // As ClientBoard::Expose. `by_stream`: data streams may touch some items as well. False: there
  // was no room on the board, and data streams have to move all of it.
  bool Expose(uint64_t request, std::shared_ptr<ExposedRequest> exposed, std::vector<ItemRecord> items,
              absl::Span<const Descriptor> descriptors, bool by_stream);

  // The request, if it is exposed; touched by this process until EndUse.
  std::shared_ptr<ExposedRequest> BeginUse(uint64_t request);
  void EndUse(uint64_t request);

  bool ByStream(uint64_t request) const;
  // The data streams have let go of it.
  void StreamsReleased(uint64_t request);
  // The server says that it has.
  void ServerReleased(uint64_t request);
  Release Withdraw(uint64_t request, std::function<void()> released);

  // For when the server can say nothing any more: releases what its gate shows to be unused,
  // or all, if the server is gone.
  void ReleaseUnused(bool server_gone);
  // For the end: closes all gates; whether the server still uses something.
  bool CloseGates();
  // Releases everything.
  void Clear();

 private:
  struct Entry {
    std::shared_ptr<ExposedRequest> exposed;
    std::optional<uint32_t> slot;
    uint32_t uses = 0;
    bool withdrawn = false;
    bool at_server = false;  // withdrawn while the server used it
    bool by_stream = false;
    std::function<void()> released;
  };
  using Map = std::unordered_map<uint64_t, Entry>;
  // Destroyed without the lock: it may be the last to hold the request.
  struct Ended {
    std::shared_ptr<ExposedRequest> exposed;
    std::function<void()> released;
  };

  // With the lock held. Ends a withdrawn entry that nobody touches.
  Ended EndIfUnused(Map::iterator it);
  void Change(uint64_t request, const std::function<void(Entry&)>& change);

  ClientBoard* const board_;
  mutable std::mutex mutex_;
  Map entries_;  // guarded by mutex_
};

}  // namespace quarry::transport::shm

#endif  // QUARRY_COMMON_TRANSPORT_SHM_EXPOSURES_H_
