// A connection that has been accepted and not yet said what it is: a control stream (Hello)
// or a data stream (DataHello).
#ifndef QUARRY_SERVER_SESSION_HANDSHAKE_H_
#define QUARRY_SERVER_SESSION_HANDSHAKE_H_

#include <functional>
#include <string>

#include "common/net/event_loop.h"
#include "common/net/socket.h"
#include "common/session/message_buffer.h"
#include "common/session/messages.h"

namespace quarry::server {

// All on the loop's thread. Ends by calling `done` once, and is destroyed by it.
class Handshake : public FdHandler {
 public:
  static constexpr int64_t kTimeoutNs = 5'000'000'000;
  // Of the first message: who is not let in yet may not make the node keep much.
  static constexpr size_t kMaxHelloBytes = 16 << 10;

  struct Result {
    UniqueFd fd;                 // not valid: the connection is to be forgotten
    wire::MessageBuffer buffer;  // what came after the first message
    // One of the two, when fd is valid.
    bool is_control = false;
    std::string client;          // control: the client's name
    std::string credential;      // control
    std::string session;         // data: the session that it joins
    uint32_t shared_memory = 0;  // data: DataHello.shared_memory
    bool ucx = false;            // data: DataHello.ucx
    uint32_t minor = 0;          // the version in force
    uint64_t request = 0;        // of the message, for the reply
    absl::Status status;         // why there is no valid fd
  };
  Handshake(UniqueFd fd, EventLoop* loop, std::function<void(Handshake*, Result)> done);
  ~Handshake() override;
  EventLoop* loop() const { return loop_; }

 private:
  void OnEvents(uint32_t events) override;
  void Interpret(const wire::ClientMessage& message, Result* result);
  void Finish(Result result);

  UniqueFd fd_;
  EventLoop* const loop_;
  const std::function<void(Handshake*, Result)> done_;
  wire::MessageBuffer in_;
  bool preface_seen_ = false;
  EventLoop::TimerId timer_ = 0;
};

// Sends one message on a connection that is about to be closed or handed over; best
// effort, without waiting.
void SendNow(int fd, const wire::ServerMessage& message);

wire::ServerMessage ErrorMessage(uint64_t request, const absl::Status& status);

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SESSION_HANDSHAKE_H_
