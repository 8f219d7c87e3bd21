// One asynchronous call, from its start to its completions.
#ifndef QUARRY_CLIENT_OPERATION_H_
#define QUARRY_CLIENT_OPERATION_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "client/completion_queue_impl.h"
#include "client/counters.h"
#include "client/load_rates.h"
#include "common/session/messages.h"
#include "common/transport/transport.h"

namespace quarry {

// What an operation asks of the session that carries it. Valid as long as the operation is
// under way.
class OperationHost {
 public:
  enum class EndedBy : uint8_t { kServer, kClient };

  virtual ~OperationHost() = default;
  // Loop thread. Ends the operation: nothing happens when it has ended already.
  virtual void EndOperation(uint64_t id, absl::Status status, EndedBy by) = 0;
  // Any thread. Calls OnPosted of the operation on the loop's thread, unless it ends
  // before.
  virtual void PostToOperation(uint64_t id) = 0;
  // Any thread. A message that nobody waits for; lost when the connection breaks.
  virtual void SendAside(const wire::ClientMessage& message) = 0;
};

// An operation ends once: where the session takes it out of its table, on the loop's thread
// or, of a ReplyOperation, on that of the caller that has read its reply ("loop thread" below
// means either). Items may end on other threads before.
class Operation {
 public:
  struct Context {
    uint64_t id = 0;
    uint64_t user_data = 0;
    int64_t deadline_ns = 0;   // Clock::Real
    uint32_t deadline_ms = 0;  // the same, from now, as the server is told
    std::shared_ptr<CompletionQueue::Impl> queue;
    OperationHost* host = nullptr;
    std::shared_ptr<AtomicCounters> counters;
    std::shared_ptr<LoadRates> load_rates;
  };

  explicit Operation(Context context) : context_(std::move(context)) {}
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  uint64_t id() const { return context_.id; }
  int64_t deadline_ns() const { return context_.deadline_ns; }

  // Loop thread, while under way. Not OK: the server broke the protocol.
  virtual absl::Status OnMessage(const wire::ServerMessage& message) = 0;
  virtual void OnPosted() {}

  // The buffers that the server may read or write; this object itself, or nullptr.
  virtual transport::ExposedRequest* exposed() { return nullptr; }

  // Loop thread, once: reports kDone, and says the last word to the server.
  void Finish(const absl::Status& status, bool held, OperationHost::EndedBy by);
  // Loop thread, once, after Finish with held = true: reports kReleased.
  void Release();

 protected:
  // Puts the result into the completion. No item may be reported afterwards.
  virtual void FillResult(const absl::Status& status, Completion* completion) = 0;
  // Tells the server what it does not know about the end.
  virtual void SayFarewell(const absl::Status& status, OperationHost::EndedBy by);

  Completion MakeCompletion(Completion::Kind kind) const;
  const Context& context() const { return context_; }
  // Unavailable, for OnMessage.
  static absl::Status ProtocolViolation(absl::string_view what);

 private:
  const Context context_;
};

}  // namespace quarry

#endif  // QUARRY_CLIENT_OPERATION_H_
