// The control stream after its handshake: length-framed messages in both directions.
#ifndef QUARRY_CLIENT_CONTROL_STREAM_H_
#define QUARRY_CLIENT_CONTROL_STREAM_H_

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/net/event_loop.h"
#include "common/net/socket.h"
#include "common/session/message_buffer.h"

namespace quarry {

// Held by shared_ptr. Messages are written on the caller's thread while the socket takes
// them, so that a request costs no hop to the loop.
class ControlStream : public FdHandler, public std::enable_shared_from_this<ControlStream> {
 public:
  // Called on the loop's thread, and never after Stop.
  class Listener {
   public:
    virtual ~Listener() = default;
    // Without the length prefix; the bytes stay valid during the call.
    virtual void OnControlMessage(absl::string_view message) = 0;
    // Once. The stream is of no more use.
    virtual void OnControlBroken(absl::Status why) = 0;
  };

  // `fd` is connected and non-blocking. Loop and listener outlive the stream's Stop.
  ControlStream(UniqueFd fd, EventLoop* loop, Listener* listener);

  // On the loop's thread.
  void Start();
  void Stop();

  // Any thread. `framed` is one or more messages with their length prefixes. What the
  // socket does not take is kept and sent by the loop. A failure is also reported by
  // OnControlBroken.
  void Send(absl::string_view framed);
  size_t outgoing_bytes() const;

  void OnEvents(uint32_t events) override;

 private:
  enum class State : uint8_t { kNew, kRunning, kStopped };

  // How many bytes the socket took.
  size_t TrySend(absl::string_view data);
  void Flush();
  void Receive();
  void Break(absl::Status why);

  const UniqueFd fd_;
  EventLoop* const loop_;
  Listener* const listener_;
  State state_ = State::kNew;     // loop only
  wire::MessageBuffer incoming_;  // loop only

  mutable std::mutex write_mutex_;
  std::string outgoing_;       // guarded by write_mutex_; empty unless the socket is full
  size_t flushed_ = 0;         // guarded by write_mutex_; of outgoing_
  bool write_failed_ = false;  // guarded by write_mutex_
};

}  // namespace quarry

#endif  // QUARRY_CLIENT_CONTROL_STREAM_H_
