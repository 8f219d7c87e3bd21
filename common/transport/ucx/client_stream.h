// The client's end of a session's UCX endpoint: lands what the node sends, sends what it pulls.
#ifndef QUARRY_COMMON_TRANSPORT_UCX_CLIENT_STREAM_H_
#define QUARRY_COMMON_TRANSPORT_UCX_CLIENT_STREAM_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "common/transport/exposed_table.h"
#include "common/transport/ucx/item_message.h"
#include "common/transport/ucx/side_stream.h"

namespace quarry::transport::ucx {

// On the loop's thread, but for the constructor.
class ClientStream : public MessageSink, public std::enable_shared_from_this<ClientStream> {
 public:
  // `token`: of messages to this end. `fd`: where the ends have greeted each other.
  ClientStream(UniqueFd fd, std::shared_ptr<Worker> worker, uint64_t token, std::shared_ptr<ExposedTable> table,
               std::function<void(absl::Status)> on_broken);

  EventLoop* loop() const { return worker_->loop(); }

  // Not OK: the server's worker cannot be reached.
  absl::Status Open(const Greeting& server);
  // Nothing is begun any more; what is under way ends soon.
  void Close();
  // Stops touching the request's buffers, but for what is under way.
  void Abandon(uint64_t request);

 private:
  // A server that asks for more without taking it is wrong.
  static constexpr size_t kMaxQueued = 1 << 18;
  static constexpr size_t kWindowBytes = 8 << 20;

  struct Landing;
  struct Sending;

  void OnMessage(const Message& message, absl::Span<const std::byte> meta, Arrival* arrival) override;
  void OnMalformed(const absl::Status& why) override { Break(why); }
  void OnData(const Message& message, absl::Span<const std::byte> meta, Arrival* arrival);
  void OnPull(ItemId id);
  void EndLanding(Landing* landing, bool landed);
  void SendQueued();
  void Send(ItemId id, std::shared_ptr<ExposedRequest> exposed);
  void EndSend(Sending* sending, bool sent);
  void Abort(ItemId id);
  // Soon: UCX may be at work on the endpoint.
  void Break(const absl::Status& status);

  const std::shared_ptr<Worker> worker_;
  const uint64_t token_;
  const std::shared_ptr<ExposedTable> table_;
  const std::function<void(absl::Status)> on_broken_;
  uint64_t server_token_ = 0;
  std::shared_ptr<Endpoint> endpoint_;  // while open
  std::deque<ItemId> queue_;            // pulled; each is a use in table_
  size_t sending_bytes_ = 0;
  bool send_posted_ = false;
  SideStream side_;
};

}  // namespace quarry::transport::ucx

#endif  // QUARRY_COMMON_TRANSPORT_UCX_CLIENT_STREAM_H_
