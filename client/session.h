// One established connection to a node: its control stream, its channel, and the
// operations that it carries. It breaks once and is then replaced by another one.
#ifndef QUARRY_CLIENT_SESSION_H_
#define QUARRY_CLIENT_SESSION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/control_stream.h"
#include "client/counters.h"
#include "client/dial_interrupt.h"
#include "client/handshake.h"
#include "client/open_channel.h"
#include "client/operation.h"
#include "client/reply_operation.h"
#include "common/net/event_loop.h"
#include "common/session/messages.h"
#include "common/transport/transport.h"
#include "quarry/client.h"

namespace quarry {

// A server that reads nothing gets no more to read: beyond so much unsent, new operations
// are refused.
inline constexpr size_t kMaxOutgoingBytes = 8 << 20;

struct SessionContext {
  uint32_t number = 0;            // counts a client's sessions, from 1
  std::vector<EventLoop*> loops;  // the first carries the control stream
  std::shared_ptr<AtomicCounters> counters;
  std::atomic<uint64_t>* next_request = nullptr;  // the client's; outlives the session
  // Loop thread, once, when the session breaks by itself or by Dispose. All operations
  // have ended; those held are released by Dispose.
  std::function<void()> on_broken;
};

// Thread-safe. Held by shared_ptr; Dispose before the last one goes.
class Session : public OperationHost, private ControlStream::Listener, public std::enable_shared_from_this<Session> {
 public:
  // Blocks until connected, interrupted, or the deadline (Clock::Real). FailedPrecondition: the
  // transport that was named does not work.
  static absl::StatusOr<std::shared_ptr<Session>> Open(const ClientOptions& options, SessionContext context,
                                                       int64_t deadline_ns, DialInterrupt* interrupt);
  ~Session() override;

  uint32_t number() const { return context_.number; }
  const wire::Limits& limits() const { return limits_; }
  bool broken() const;
  absl::Status why_broken() const;
  const TransportChoice& transport() const { return transport_; }

  // As ClientChannel's. Not on a loop's thread.
  absl::Status RegisterMemory(MemoryRange range);
  void UnregisterMemory(MemoryRange range);

  // Starts an operation: exposes its buffers, sends `message`. Not OK: nothing was begun
  // (Unavailable, ResourceExhausted). OK: the operation will end.
  absl::Status Begin(const std::shared_ptr<Operation>& operation, const std::string& message);
  // The same for a caller that waits for the operation next: if it is the only one under way,
  // the caller itself reads the reply, and the operation has ended when this returns.
  absl::Status BeginAndRead(const std::shared_ptr<ReplyOperation>& operation, const std::string& message);
  // Ends the operation with Cancelled, soon, unless it has ended.
  void Cancel(uint64_t id);
  // Ends all operations with `why` unless the session has broken already, closes the
  // streams and releases what was held. Not on a loop's thread.
  void Dispose(const absl::Status& why);

  void EndOperation(uint64_t id, absl::Status status, EndedBy by) override;
  void PostToOperation(uint64_t id) override;
  void SendAside(const wire::ClientMessage& message) override;

 private:
  Session(SessionContext context, wire::Limits limits);
  absl::Status Connect(const ClientOptions& options, Greeting greeting, int64_t deadline_ns, DialInterrupt* interrupt);

  EventLoop* loop() const { return context_.loops.front(); }
  std::shared_ptr<Operation> Find(uint64_t id) const;
  std::shared_ptr<Operation> Take(uint64_t id);
  bool idle() const;
  // Ends the operation if `bytes` are its reply. False: they are the loop's business.
  bool EndByReply(ReplyOperation* operation, absl::string_view bytes);
  absl::Status Admit(const std::shared_ptr<Operation>& operation);
  // Runs `task` on the loop unless the session is gone by then.
  void PostSafely(std::function<void(Session*)> task);

  // Loop thread.
  void OnControlMessage(absl::string_view bytes) override;
  void OnControlBroken(absl::Status why) override { Break(why); }
  void OnStrayReply(const wire::ServerMessage& message);
  void Break(const absl::Status& why);
  void ReleaseHeld(uint64_t id);
  void CountReleased(Operation* operation);
  void ArmTimer();
  void OnTimer();

  const SessionContext context_;
  const wire::Limits limits_;
  TransportChoice transport_;  // constant once open
  std::shared_ptr<ControlStream> control_;
  std::mutex memory_mutex_;                            // held while memory is registered, which may take a while
  std::unique_ptr<transport::ClientChannel> channel_;  // reset with memory_mutex_ held

  // Loop only.
  std::unordered_map<uint64_t, std::shared_ptr<Operation>> held_;  // done, not released
  EventLoop::TimerId timer_ = 0;

  mutable std::mutex mutex_;
  // The rest is guarded by mutex_.
  bool broken_ = false;
  absl::Status why_broken_;
  std::unordered_map<uint64_t, std::shared_ptr<Operation>> operations_;  // begun, not done
  std::set<std::pair<int64_t, uint64_t>> deadlines_;                     // of operations_
  int64_t timer_due_ns_ = INT64_MAX;                                     // when OnTimer will look
};

}  // namespace quarry

#endif  // QUARRY_CLIENT_SESSION_H_
