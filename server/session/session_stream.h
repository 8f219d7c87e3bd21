// The server's end of a control stream: messages in, messages out.
#ifndef QUARRY_SERVER_SESSION_SESSION_STREAM_H_
#define QUARRY_SERVER_SESSION_SESSION_STREAM_H_

#include <functional>
#include <string>

#include "common/net/event_loop.h"
#include "common/net/socket.h"
#include "common/session/message_buffer.h"
#include "common/session/messages.h"

namespace quarry::server {

// All on the loop's thread.
class SessionStream : public FdHandler {
 public:
  // A client that asks but does not read its answers is cut off here.
  static constexpr size_t kMaxUnsentBytes = 16 << 20;
  // What an idle stream's buffer may keep.
  static constexpr size_t kMaxKeptBytes = 1 << 20;

  // `buffer` holds what came with the handshake. `on_message` may close the stream;
  // `on_closed` is called once when it ends by itself, and may not destroy the stream.
  SessionStream(UniqueFd fd, EventLoop* loop, wire::MessageBuffer buffer,
                std::function<void(absl::string_view)> on_message, std::function<void(absl::Status)> on_closed);
  ~SessionStream() override;

  void Open();
  void Close();
  bool open() const { return open_; }
  // Sent when the current round of messages is through, or now outside of one; what is
  // said before Open goes out then, before any answer.
  void Send(const wire::ServerMessage& message);

 private:
  void OnEvents(uint32_t events) override;
  void HandleBuffered();
  void Flush();
  void Break(const absl::Status& status);

  UniqueFd fd_;
  EventLoop* const loop_;
  wire::MessageBuffer in_;
  std::string out_;
  size_t out_sent_ = 0;
  const std::function<void(absl::string_view)> on_message_;
  const std::function<void(absl::Status)> on_closed_;
  bool open_ = false;
  bool in_round_ = false;
  bool writable_armed_ = false;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SESSION_SESSION_STREAM_H_
