// What the longer operations of a session have in common.
#ifndef QUARRY_SERVER_SESSION_REQUEST_H_
#define QUARRY_SERVER_SESSION_REQUEST_H_

#include <cstdint>
#include <memory>

#include "common/net/event_loop.h"
#include "server/metrics/service_metrics.h"

namespace quarry::server {

class Session;

// A get or put under way. Its own thread is the session's loop; ends of transfers come
// from others and are handed over. Transfers hold it by shared_ptr, and it the session, so
// that both outlive what channels still have to finish.
class Request : public std::enable_shared_from_this<Request> {
 public:
  // No operation lasts longer than this, whatever the client says or forgets to say.
  static constexpr uint32_t kMaxDurationMs = 60'000;

  Request(std::shared_ptr<Session> session, uint64_t id, Op op, uint32_t deadline_ms);
  virtual ~Request() = default;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  uint64_t id() const { return id_; }
  // How many it has: what it costs in memory. Does not change once it has started.
  virtual uint64_t items() const = 0;
  int64_t begin_ns() const { return begin_ns_; }
  int64_t deadline_ns() const { return deadline_ns_; }

  // Ends it as soon as may be: the deadline has passed, or the client or the session is
  // gone. May be called more than once.
  virtual void Abort() = 0;
  // The session has room for reserved payload again; see Session::WaitForRoom.
  virtual void OnRoom() {}

 protected:
  Session& session() const { return *session_; }
  // Starts the deadline's timer.
  void Arm();
  // The last answer has been sent: counts, and forgets the request.
  void Complete();

 private:
  const std::shared_ptr<Session> session_;
  const uint64_t id_;
  const Op op_;
  const int64_t begin_ns_;
  const int64_t deadline_ns_;
  EventLoop::TimerId timer_ = 0;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SESSION_REQUEST_H_
