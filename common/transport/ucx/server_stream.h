// One session's UCX endpoint at the server: sends slots to the client's items, pulls the client's
// items into slots, or moves both by RMA.
#ifndef QUARRY_COMMON_TRANSPORT_UCX_SERVER_STREAM_H_
#define QUARRY_COMMON_TRANSPORT_UCX_SERVER_STREAM_H_

#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "common/transport/tcp/server_stream.h"
#include "common/transport/transfer_inbox.h"
#include "common/transport/ucx/host.h"
#include "common/transport/ucx/item_message.h"
#include "common/transport/ucx/remote_regions.h"
#include "common/transport/ucx/side_stream.h"

namespace quarry::transport::ucx {

class ServerStream : public MessageSink, public TransferInbox {
 public:
  // `on_ready`: once, when transfers may come. `on_broken`: once, when the session cannot go on.
  // Both on the loop's thread.
  ServerStream(UniqueFd fd, EventLoop* loop, std::shared_ptr<Host> host, int64_t stuck_ns,
               std::function<void()> on_ready, std::function<void(absl::Status)> on_broken);

 private:
  // What is under way: enough to keep the way to the client full. The rest waits.
  static constexpr size_t kWindowBytes = 8 << 20;
  static constexpr size_t kWindowItems = 64;

  // An item that the client was asked for, or where it lies.
  struct Asked {
    std::unique_ptr<Transfer> transfer;
    Segment slot;
    std::unique_ptr<ItemLanding> landing;  // once it comes, or the answer
    std::vector<Descriptor> place;
    bool cancelled = false;
  };
  struct Sending;

  // The rest on the loop's thread.
  void Open() override { side_.Open(); }
  void Work() override;
  void Cancel(uint64_t request) override;
  void Close() override;
  void OnGreeting(const Greeting& greeting);
  absl::Status Accept(const Greeting& greeting);
  void TakeInbox();
  bool HasRoom() const { return under_way_ == 0 || (bytes_ < kWindowBytes && under_way_ < kWindowItems); }
  void Begin(std::unique_ptr<Transfer> transfer);
  void Write(std::unique_ptr<Transfer> transfer);
  void Ask(std::unique_ptr<Transfer> transfer);
  void EndWrite(Sending* sending, bool sent);
  void EndPlace(ItemId id, bool landed);
  void Move(ItemId id, Asked& asked);
  void EndMove(ItemId id, bool moved);
  void EndLanding(ItemId id, bool landed);
  void EndAsked(ItemId id, TransferStatus status, uint64_t client_root = 0);
  // Of an asked item that is wrong: ends the session.
  void EndMalformed(ItemId id, const absl::Status& status);
  // What the client said is where it lies is not touched, or no more.
  void Release(ItemId id);
  void Say(MessageType type, ItemId id, absl::string_view rest = "");
  void SayWritten(const Transfer& transfer);
  void Count(size_t bytes);
  void Uncount(size_t bytes);
  // Soon: UCX may be at work on the endpoint.
  void Break(const absl::Status& status);
  void LookIfStuck();

  void OnMessage(const Message& message, absl::Span<const std::byte> meta, Arrival* arrival) override;
  void OnMalformed(const absl::Status& why) override { Break(why); }
  void OnData(const Message& message, absl::Span<const std::byte> meta, Arrival* arrival);
  void OnPlace(const Message& message, absl::Span<const std::byte> meta, Arrival* arrival);
  void OnElsewhere(ItemId id);
  void OnRegion(uint32_t key, absl::Span<const std::byte> claim);

  std::shared_ptr<ServerStream> Self() { return std::static_pointer_cast<ServerStream>(shared_from_this()); }

  const std::shared_ptr<Host> host_;
  const int64_t stuck_ns_;
  const std::function<void()> on_ready_;
  const std::function<void(absl::Status)> on_broken_;

  bool broken_ = false;        // or closed
  uint64_t token_ = 0;         // of messages to this end
  uint64_t client_token_ = 0;  // of those to the client
  std::shared_ptr<Worker> worker_;
  std::shared_ptr<Endpoint> endpoint_;  // while open
  bool rma_ = false;                    // where the client's memory is registered
  RemoteRegions regions_;
  std::deque<std::unique_ptr<Transfer>> queue_;
  std::unordered_map<ItemId, Asked, ItemIdHash> asked_;
  size_t under_way_ = 0;  // items
  size_t bytes_ = 0;      // of them
  uint64_t ended_ = 0;
  uint64_t ended_when_looked_ = 0;
  EventLoop::TimerId stuck_timer_ = 0;
  SideStream side_;
};

}  // namespace quarry::transport::ucx

#endif  // QUARRY_COMMON_TRANSPORT_UCX_SERVER_STREAM_H_
