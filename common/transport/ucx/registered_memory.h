// The memory of a client that its server may reach by RMA: mapped for the adapters, told to the
// server, and counted while items in it are the server's to touch.
#ifndef QUARRY_COMMON_TRANSPORT_UCX_REGISTERED_MEMORY_H_
#define QUARRY_COMMON_TRANSPORT_UCX_REGISTERED_MEMORY_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/net/event_loop.h"
#include "common/transport/descriptor.h"
#include "common/transport/ucx/context.h"
#include "common/transport/ucx/message.h"

namespace quarry::transport::ucx {

// Thread-safe.
class RegisteredMemory {
 public:
  // `tell` sends a message about the region of a key to the server, on the loop's thread. `revoke`
  // ends the session, soon, and calls End; on any thread.
  using Tell = std::function<void(MessageType, uint32_t key, const std::string& rest)>;
  RegisteredMemory(std::shared_ptr<Context> context, EventLoop* loop, Tell tell, std::function<void()> revoke);
  ~RegisteredMemory() { End(); }

  // Blocks until the server has answered, so not on the loop's thread.
  absl::Status Add(MemoryRange range);
  // When it returns nothing reaches the memory any more: waits for the items that are placed in it,
  // or, where the server does not let go of them, ends the session. On the loop's thread it cannot
  // wait: what is placed there then loses its mapping, by which adapters reach it.
  void Remove(MemoryRange range);

  // The rest on the loop's thread.

  // Where the segments lie; in use until EndUse. False: not, or not all, in memory of the server's
  // reach, or in too many pieces.
  bool BeginUse(absl::Span<const Segment> segments, std::vector<Descriptor>* descriptors);
  void EndUse(absl::Span<const Descriptor> descriptors);
  void OnReply(uint32_t key, absl::Status status);
  // When UCX has ended: nothing is mapped any more.
  void End();

 private:
  struct Region {
    ucp_mem_h mapped = nullptr;
    uint32_t uses = 0;
    std::optional<absl::Status> reply;
  };

  absl::StatusOr<std::string> Pack(ucp_mem_h mapped) const;
  // Forgets the region; the server is told.
  void Drop(uint32_t key);

  const std::shared_ptr<Context> context_;
  EventLoop* const loop_;
  const Tell tell_;
  const std::function<void()> revoke_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint32_t, Region> regions_;  // guarded by mutex_
  RegisteredRanges ranges_;             // guarded by mutex_; what items may be placed in
  uint32_t next_key_ = 0;               // guarded by mutex_; never used again
  bool ended_ = false;                  // guarded by mutex_
};

}  // namespace quarry::transport::ucx

#endif  // QUARRY_COMMON_TRANSPORT_UCX_REGISTERED_MEMORY_H_
