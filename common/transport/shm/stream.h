// One connection between the ends: messages both ways, with the file descriptors that some
// of them carry.
#ifndef QUARRY_COMMON_TRANSPORT_SHM_STREAM_H_
#define QUARRY_COMMON_TRANSPORT_SHM_STREAM_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "common/net/event_loop.h"
#include "common/net/socket.h"
#include "common/transport/shm/message.h"

namespace quarry::transport::shm {

// Called on the loop's thread.
class MessageSink {
 public:
  virtual ~MessageSink() = default;
  // `fds`: those that have come and were not taken; a message's own are its oldest. Not OK:
  // the peer is wrong, and the stream ends.
  virtual absl::Status OnMessage(const Message& message, std::deque<UniqueFd>* fds) = 0;
  // All messages that had come have been handed over.
  virtual void OnRoundEnd() {}
  // What was to be sent has been taken by the socket, after it had been full.
  virtual void OnDrained() {}
  // Once, when the stream ends by itself.
  virtual void OnStreamBroken(const absl::Status& status) = 0;
};

// All on the loop's thread.
class Stream : public FdHandler {
 public:
  Stream(UniqueFd fd, EventLoop* loop, MessageSink* sink);
  ~Stream() override;

  void Open();
  void Close();
  bool open() const { return open_; }
  EventLoop* loop() const { return loop_; }
  int fd() const { return fd_.get(); }

  // Sent by the next Flush.
  void Send(const Message& message, std::vector<UniqueFd> fds = {});
  void Flush();
  size_t unsent_bytes() const { return unsent_bytes_; }

 private:
  // Descriptors that a peer may have sent ahead of what it says about them.
  static constexpr size_t kMaxWaitingFds = 8;
  static constexpr size_t kReadBytes = 64 << 10;

  struct Outgoing {
    std::string bytes;
    size_t sent = 0;
    std::vector<UniqueFd> fds;  // go with the first byte
  };

  void OnEvents(uint32_t events) override;
  absl::Status Receive();
  absl::Status HandOver();
  void Break(const absl::Status& status);

  UniqueFd fd_;
  EventLoop* const loop_;
  MessageSink* const sink_;
  bool open_ = false;
  bool writable_armed_ = false;
  std::string in_;
  size_t in_begin_ = 0;
  std::deque<UniqueFd> fds_;
  std::deque<Outgoing> out_;
  size_t unsent_bytes_ = 0;
};

// One sendmsg of `bytes`, with descriptors that are duplicated on the way; as sendmsg returns.
ssize_t SendWithFds(int socket, absl::string_view bytes, const std::vector<UniqueFd>& fds);

}  // namespace quarry::transport::shm

#endif  // QUARRY_COMMON_TRANSPORT_SHM_STREAM_H_
