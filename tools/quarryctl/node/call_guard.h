// Looks after a call that has no deadline.
#ifndef QUARRY_TOOLS_QUARRYCTL_NODE_CALL_GUARD_H_
#define QUARRY_TOOLS_QUARRYCTL_NODE_CALL_GUARD_H_

#include <grpcpp/client_context.h>

#include <atomic>
#include <cstdint>
#include <thread>

#include "absl/status/status.h"
#include "tools/quarryctl/node/connection.h"
#include "tools/quarryctl/node/signals.h"

namespace quarry::ctl {

// Cancels the call when a signal says stop, when it has had no answer within the timeout, or
// when the node, asked as often from then on, gives none: a node that is stopped or cut off
// would otherwise leave the call open for hours. A thread of its own does the looking.
class CallGuard {
 public:
  // Before the call begins: that may wait already. All outlive it; meanwhile nobody else
  // waits for the signals.
  CallGuard(grpc::ClientContext* call, Connection* connection, Signals* signals, int64_t timeout_ns);
  // The call has ended.
  ~CallGuard();

  // The node has taken the call.
  void Answered() { answered_ = true; }

  // After the call has ended: whether a signal ended it; else the node's failure, if any.
  bool stopped() const { return stopped_; }
  absl::Status failure();

 private:
  void Run();
  void Join();

  grpc::ClientContext* const call_;
  Connection* const connection_;
  Signals* const signals_;
  const int64_t timeout_ns_;
  std::atomic<bool> answered_{false};
  std::atomic<bool> ended_{false};
  std::atomic<bool> stopped_{false};
  absl::Status failure_;  // the thread's, until it is joined
  std::thread thread_;
};

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_NODE_CALL_GUARD_H_
