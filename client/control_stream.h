// The control stream after its handshake: length-framed messages in both directions.
#ifndef QUARRY_CLIENT_CONTROL_STREAM_H_
#define QUARRY_CLIENT_CONTROL_STREAM_H_

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/net/event_loop.h"
#include "common/net/socket.h"
#include "common/net/spin_budget.h"
#include "common/session/message_buffer.h"

namespace quarry {

// Held by shared_ptr. Messages are written on the caller's thread while the socket takes
// them, so that a request costs no hop to the loop. They are read on the loop's thread,
// except while a caller that waits for its reply has the turn to read: then the reply costs
// no hop either.
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

  // While it lives, its owner reads and the loop does not.
  class Turn {
   public:
    Turn() = default;
    Turn(Turn&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
    ~Turn();
    explicit operator bool() const { return stream_ != nullptr; }

    // Waits for the next message until the deadline (Clock::Real); valid until the turn
    // ends. nullopt: there is none, or the stream has ended, of which the loop will know.
    std::optional<absl::string_view> Next(int64_t deadline_ns);
    // Leaves the message that Next gave to the loop, with all that follow.
    void PutBack() { stream_->incoming_.PutBack(); }

   private:
    friend class ControlStream;
    explicit Turn(ControlStream* stream) : stream_(stream) {}

    ControlStream* stream_ = nullptr;  // outlives the turn
  };
  // Any thread but the loop's. Empty: another one is reading.
  Turn TakeTurn();

  void OnEvents(uint32_t events) override;

 private:
  enum class State : uint8_t { kNew, kRunning, kStopped };

  bool running() const;
  // How many bytes the socket took.
  size_t TrySendLocked(absl::string_view data);
  uint32_t WantedEventsLocked() const;
  void UpdateEventsLocked();
  void Flush();
  void Receive();
  // For whoever has the turn. False: the deadline has passed.
  bool AwaitReadable(int64_t deadline_ns);
  void EndTurn();
  void Break(absl::Status why);

  const UniqueFd fd_;
  EventLoop* const loop_;
  Listener* const listener_;

  std::mutex read_mutex_;         // of whoever reads; never waited for
  wire::MessageBuffer incoming_;  // guarded by read_mutex_
  SpinBudget spin_;               // guarded by read_mutex_

  mutable std::mutex mutex_;
  // The rest is guarded by mutex_.
  State state_ = State::kNew;
  bool loop_reads_ = true;
  std::string outgoing_;  // empty unless the socket is full
  size_t flushed_ = 0;    // of outgoing_
  bool write_failed_ = false;
};

}  // namespace quarry

#endif  // QUARRY_CLIENT_CONTROL_STREAM_H_
