// The connection on which the ends have greeted each other: at the server it brings the client's
// greeting; then, at both ends, it says nothing until the other end is gone.
#ifndef QUARRY_COMMON_TRANSPORT_UCX_SIDE_STREAM_H_
#define QUARRY_COMMON_TRANSPORT_UCX_SIDE_STREAM_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "common/net/event_loop.h"
#include "common/net/socket.h"
#include "common/transport/ucx/greeting.h"

namespace quarry::transport::ucx {

// On the loop's thread.
class SideStream : public FdHandler {
 public:
  // `on_greeting`: empty where none is to come. `on_broken`: once, not after Close.
  SideStream(UniqueFd fd, EventLoop* loop, std::function<void(const Greeting&)> on_greeting,
             std::function<void(absl::Status)> on_broken);
  ~SideStream() override { Close(); }

  void Open();
  void Close();
  // Small, and the first that is sent: the socket has room for it.
  void Send(const Greeting& greeting);

 private:
  void OnEvents(uint32_t events) override;
  // Unavailable: the other end is gone.
  absl::Status Receive();
  void Break(absl::Status status);

  UniqueFd fd_;
  EventLoop* const loop_;
  std::function<void(const Greeting&)> on_greeting_;
  const std::function<void(absl::Status)> on_broken_;
  bool open_ = false;
  std::string in_;
};

}  // namespace quarry::transport::ucx

#endif  // QUARRY_COMMON_TRANSPORT_UCX_SIDE_STREAM_H_
