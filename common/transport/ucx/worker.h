// A UCX worker on an event loop: sends and receives active messages of the sessions that use it.
#ifndef QUARRY_COMMON_TRANSPORT_UCX_WORKER_H_
#define QUARRY_COMMON_TRANSPORT_UCX_WORKER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/net/event_loop.h"
#include "common/transport/ucx/context.h"
#include "common/transport/ucx/message.h"
#include "quarry/segments.h"

namespace quarry::transport::ucx {

// The data of a message, while it is being handed over.
class Arrival {
 public:
  size_t bytes() const { return bytes_; }

 private:
  friend class Worker;
  void* data_ = nullptr;
  size_t bytes_ = 0;
  bool rendezvous_ = false;  // data_ stands for what the sender still has
  bool taken_ = false;
};

// Receives the messages that bear its token, on the loop's thread.
class MessageSink {
 public:
  virtual ~MessageSink() = default;
  // `meta`: what stands behind the header. Data that is not given to Worker::Land is dropped; its
  // sender sees no difference.
  virtual void OnMessage(const Message& message, absl::Span<const std::byte> meta, Arrival* arrival) = 0;
  virtual void OnMalformed(const absl::Status& why) = 0;
};

class Worker;

// The way to one peer's worker. On the loop's thread. Closes when the last one lets go of it; what is
// sent on it keeps it: where one is closed in the midst of sending, UCX (1.13 and 1.22, over TCP)
// uses what it has freed, once the peer goes away.
class Endpoint {
 public:
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

 private:
  friend class Worker;
  friend class RemoteKey;
  // Outlives the endpoint until UCX has let go of it.
  struct State {
    ucp_ep_h handle = nullptr;
    bool closing = false;
    std::function<void(absl::Status)> on_failed;
  };
  Endpoint(std::shared_ptr<Worker> worker, std::shared_ptr<State> state)
      : worker_(std::move(worker)), state_(std::move(state)) {}

  const std::shared_ptr<Worker> worker_;
  const std::shared_ptr<State> state_;
};

// Leave to reach a range of a peer's memory by RMA. On the loop's thread.
class RemoteKey {
 public:
  ~RemoteKey();
  RemoteKey(const RemoteKey&) = delete;
  RemoteKey& operator=(const RemoteKey&) = delete;

 private:
  friend class Worker;
  RemoteKey(std::shared_ptr<Endpoint> endpoint, ucp_rkey_h handle) : endpoint_(std::move(endpoint)), handle_(handle) {}

  const std::shared_ptr<Endpoint> endpoint_;
  ucp_rkey_h handle_;  // nullptr: the worker has ended
};

// Pieces of a peer's memory: piece k is `length` bytes at address + k * stride.
struct RemoteRun {
  std::shared_ptr<RemoteKey> key;  // of all of it
  uint64_t address = 0;
  uint64_t length = 0;
  uint64_t stride = 0;
  uint32_t count = 0;
};

// On the loop's thread, but for Create, address and the end of the last reference.
class Worker : public FdHandler, public std::enable_shared_from_this<Worker> {
 public:
  // Called once, when UCX has no more to do with the memory. May be called before the function
  // returns that it was given to.
  using Done = std::function<void(ucs_status_t)>;

  static absl::StatusOr<std::shared_ptr<Worker>> Create(std::shared_ptr<Context> context, EventLoop* loop);

  const std::string& address() const { return address_; }
  EventLoop* loop() const { return loop_; }
  const std::shared_ptr<Context>& context() const { return context_; }

  // Ends all there is: what UCX does not end by itself within a moment ends with UCS_ERR_CANCELED.
  // UCX has no more to do with any memory then.
  void Shutdown();

  void AddSink(uint64_t token, MessageSink* sink) { sinks_[token] = sink; }
  void RemoveSink(uint64_t token) { sinks_.erase(token); }

  // `address`: of the peer's worker, as that says. UCX believes what it says. `on_failed` is called
  // at most once, not from within another call. ResourceExhausted: there are kMaxEndpoints.
  absl::StatusOr<std::shared_ptr<Endpoint>> Connect(const std::string& address,
                                                    std::function<void(absl::Status)> on_failed);
  // Keeps it for a while: to what a peer has sent on it UCX can only answer while it is open, and
  // without an answer that never ends.
  void Linger(std::shared_ptr<Endpoint> endpoint);
  // `segments` may be empty; they are sent in order, and outlive the sending as the memory does.
  void Send(std::shared_ptr<Endpoint> endpoint, std::string header, absl::Span<const Segment> segments, Done done);
  // Whether UCX has chosen a lane of an RDMA adapter for what goes that way.
  bool HasRdmaLane(const Endpoint& endpoint) const;
  // `packed`: as the peer's UCX has packed it, which is believed.
  absl::StatusOr<std::shared_ptr<RemoteKey>> Unpack(std::shared_ptr<Endpoint> endpoint, absl::string_view packed);
  // RMA between `local` and the runs, which are as long as it together. When it is done the bytes are
  // in place: all lanes are flushed.
  enum class Direction : uint8_t { kPut, kGet };
  void Move(Direction direction, std::shared_ptr<Endpoint> endpoint, std::byte* local,
            absl::Span<const RemoteRun> remote, Done done);
  // All of the arrival's data goes to `segments`, which are as long as it.
  void Land(Arrival* arrival, absl::Span<const Segment> segments, Done done);

 private:
  friend class Endpoint;
  friend class RemoteKey;
  struct Operation;
  struct Buffer;

  static constexpr int kCallsARound = 16;  // of ucp_worker_progress, between two looks at the clock
  // How long a worker looks for more to do before it sleeps: to be woken takes longer.
  static constexpr int64_t kSpinNs = 50'000;
  // After so long the loop looks at its other work.
  static constexpr int64_t kTurnNs = 300'000;
  static constexpr int64_t kShutdownNs = 500'000'000;
  static constexpr int64_t kQuietNs = 10'000'000;
  static constexpr int64_t kLingerNs = 1'000'000'000;
  // Those of sessions that have ended count as long as they are there.
  static constexpr size_t kMaxEndpoints = 1024;

  Worker(std::shared_ptr<Context> context, EventLoop* loop) : context_(std::move(context)), loop_(loop) {}
  ~Worker() override { Shutdown(); }
  absl::Status Open();
  const Api& api() const { return context_->api(); }

  void OnEvents(uint32_t) override {
    if (!drive_posted_) Drive();
  }
  void Drive();
  void PostDrive();
  void PostClose(const std::shared_ptr<Endpoint::State>& state);
  void Close(const std::shared_ptr<Endpoint::State>& state);

  bool Sending() const;
  // Lets UCX work until nothing is being sent and nothing comes, for a moment at most.
  void FinishSending();

  Operation* NewOperation(absl::Span<const Segment> segments, Done done);
  void End(Operation* operation, ucs_status_t status);
  // What UCX returned for the operation, or for one of its calls.
  void Track(Operation* operation, ucs_status_ptr_t request);
  static void OnSent(void* request, ucs_status_t status, void* operation);
  static void OnLanded(void* request, ucs_status_t status, size_t bytes, void* operation);
  static ucs_status_t OnActiveMessage(void* self, const void* header, size_t header_bytes, void* data, size_t bytes,
                                      const ucp_am_recv_param_t* param);
  static void OnFailed(void* state, ucp_ep_h endpoint, ucs_status_t status);

  const std::shared_ptr<Context> context_;
  EventLoop* const loop_;
  ucp_worker_h handle_ = nullptr;
  int fd_ = -1;  // UCX's own
  std::string address_;
  std::unordered_map<uint64_t, MessageSink*> sinks_;
  std::unordered_set<Operation*> operations_;
  std::unordered_set<RemoteKey*> keys_;
  std::unordered_set<std::shared_ptr<Endpoint::State>> endpoints_;  // not let go of by UCX
  std::deque<std::shared_ptr<Endpoint>> lingering_;                 // a timer each
  bool drive_posted_ = false;
};

}  // namespace quarry::transport::ucx

#endif  // QUARRY_COMMON_TRANSPORT_UCX_WORKER_H_
