// The client's end of a session's UCX endpoint: lands what the node sends, sends what it pulls, or
// says where both lie, so that the node moves them by RMA.
#ifndef QUARRY_COMMON_TRANSPORT_UCX_CLIENT_STREAM_H_
#define QUARRY_COMMON_TRANSPORT_UCX_CLIENT_STREAM_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "common/transport/exposed_table.h"
#include "common/transport/ucx/item_message.h"
#include "common/transport/ucx/registered_memory.h"
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
  // Nothing is begun any more; what is under way ends soon. Where the node reaches memory itself,
  // it reaches none of it when this returns.
  void Close();
  // Stops touching the request's buffers, but for what is under way.
  void Abandon(uint64_t request);
  // What the node reaches by RMA; nullptr: nothing. As Open leaves it; thread-safe.
  RegisteredMemory* memory() const { return memory_.get(); }

 private:
  // A server that asks for more without taking it is wrong.
  static constexpr size_t kMaxQueued = 1 << 18;
  static constexpr size_t kWindowBytes = 8 << 20;

  struct Landing;
  struct Sending;
  // An item that is the node's to touch; a use in the table.
  struct Placed {
    std::shared_ptr<ExposedRequest> exposed;
    std::vector<Descriptor> descriptors;
    bool put = false;
  };

  void OnMessage(const Message& message, absl::Span<const std::byte> meta, Arrival* arrival) override;
  void OnMalformed(const absl::Status& why) override { Break(why); }
  void OnData(const Message& message, absl::Span<const std::byte> meta, Arrival* arrival);
  void OnPull(ItemId id);
  void OnOffer(ItemId id);
  void OnWritten(const Message& message, absl::Span<const std::byte> meta, Arrival* arrival);
  void OnReleased(ItemId id);
  // False: it does not lie, or not all of it, in memory that the node reaches.
  bool Place(ItemId id, const std::shared_ptr<ExposedRequest>& exposed, const tcp::ItemMeta& meta, bool put);
  void EndLanding(Landing* landing, bool landed);
  void SendQueued();
  void Send(ItemId id, std::shared_ptr<ExposedRequest> exposed);
  void EndSend(Sending* sending, bool sent);
  void Say(MessageType type, ItemId id, absl::string_view rest = "");
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
  std::unordered_map<ItemId, Placed, ItemIdHash> placed_;
  std::unique_ptr<RegisteredMemory> memory_;
  bool send_posted_ = false;
  SideStream side_;
};

}  // namespace quarry::transport::ucx

#endif  // QUARRY_COMMON_TRANSPORT_UCX_CLIENT_STREAM_H_
