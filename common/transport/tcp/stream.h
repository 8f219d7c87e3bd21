// One data connection: a socket on a loop, with its reader and writer.
#ifndef QUARRY_COMMON_TRANSPORT_TCP_STREAM_H_
#define QUARRY_COMMON_TRANSPORT_TCP_STREAM_H_

#include <functional>
#include <memory>

#include "common/net/event_loop.h"
#include "common/net/socket.h"
#include "common/transport/tcp/frame_reader.h"
#include "common/transport/tcp/frame_writer.h"

namespace quarry::transport::tcp {

// Both buffers small enough that what is in flight stays in the cache, large enough to
// keep both ends busy. The kernel doubles them. README.md has the measurement.
inline constexpr int kSocketBufferBytes = 512 << 10;

// All on the loop's thread.
class Stream : public FdHandler {
 public:
  // `refill` is called whenever the writer has run dry, to push more; `on_broken` once,
  // when the connection ends by itself.
  Stream(UniqueFd fd, EventLoop* loop, FrameSink* sink, std::function<void()> refill,
         std::function<void(absl::Status)> on_broken);
  ~Stream() override;

  void Open();
  void Close();
  bool open() const { return open_; }
  // After something was pushed to the writer: sends what the socket takes.
  void Flush();

  FrameReader& reader() { return reader_; }
  FrameWriter& writer() { return *writer_; }
  EventLoop* loop() const { return loop_; }

 private:
  // What one readiness event may move before other streams of the loop have their turn.
  static constexpr size_t kBudgetBytes = 1 << 20;

  void OnEvents(uint32_t events) override;
  void Break(const absl::Status& status);

  UniqueFd fd_;
  EventLoop* const loop_;
  FrameReader reader_;
  std::unique_ptr<FrameWriter> writer_;
  const std::function<void()> refill_;
  const std::function<void(absl::Status)> on_broken_;
  bool open_ = false;
  bool flushing_ = false;
  bool writable_armed_ = false;
};

}  // namespace quarry::transport::tcp

#endif  // QUARRY_COMMON_TRANSPORT_TCP_STREAM_H_
