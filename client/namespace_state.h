// What a Namespace stands for, and which handle it has in which session.
#ifndef QUARRY_CLIENT_NAMESPACE_STATE_H_
#define QUARRY_CLIENT_NAMESPACE_STATE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "quarry/client.h"

namespace quarry {

// Thread-safe. What is not atomic or guarded never changes.
struct Namespace::State {
  State(uint64_t owner, std::string name, std::string id, ModelSpec spec, std::vector<std::string> differing,
        uint64_t ttl_ms);

  // After the client has (re)opened it in a session, or failed to.
  void Bind(uint32_t session, uint32_t handle);
  void FailBinding(absl::Status why);
  // The handle in that session, or why there is none.
  absl::StatusOr<uint32_t> HandleIn(uint32_t session) const;

  const uint64_t owner;  // serial of the client that opened it
  const std::string name;
  const std::string id;
  const ModelSpec spec;
  const std::vector<std::string> differing_fields;
  const uint64_t ttl_ms;
  mutable std::atomic<double> prefill_tokens_per_second{0};

 private:
  std::atomic<uint64_t> binding_{0};  // session << 32 | handle; sessions are counted from 1
  mutable std::mutex mutex_;
  absl::Status failure_;  // guarded by mutex_
};

// InvalidArgument when it is negative or no number.
absl::Status CheckPrefillRate(double tokens_per_second);

struct NamespaceAccess {
  static Namespace Make(std::shared_ptr<const Namespace::State> state);
  static const std::shared_ptr<const Namespace::State>& StateOf(const Namespace& ns) { return ns.state_; }
};

}  // namespace quarry

#endif  // QUARRY_CLIENT_NAMESPACE_STATE_H_
