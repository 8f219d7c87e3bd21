// The requests that a client's streams may serve now, and how many streams are touching
// the buffers of each: what tells `released` from `held`.
#ifndef QUARRY_COMMON_TRANSPORT_EXPOSED_TABLE_H_
#define QUARRY_COMMON_TRANSPORT_EXPOSED_TABLE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "common/transport/transport.h"

namespace quarry::transport {

// Thread-safe.
class ExposedTable {
 public:
  void Expose(uint64_t request, std::shared_ptr<ExposedRequest> exposed);

  // The request, if it is exposed; its buffers count as touched until EndUse. nullptr:
  // not exposed.
  std::shared_ptr<ExposedRequest> BeginUse(uint64_t request);
  void EndUse(uint64_t request);

  // No further BeginUse succeeds.
  void Withdraw(uint64_t request);
  // After Withdraw. kHeld: the end of the last use calls `released`.
  Release ReleaseWhenUnused(uint64_t request, std::function<void()> released);

 private:
  struct Entry {
    std::shared_ptr<ExposedRequest> exposed;  // nullptr: withdrawn
    uint32_t uses = 0;
    std::function<void()> released;
  };
  std::mutex mutex_;
  std::unordered_map<uint64_t, Entry> entries_;
};

}  // namespace quarry::transport

#endif  // QUARRY_COMMON_TRANSPORT_EXPOSED_TABLE_H_
