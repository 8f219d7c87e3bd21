// One data stream at the server: writes slots to the client's items, pulls the client's
// items into slots.
#ifndef QUARRY_COMMON_TRANSPORT_TCP_SERVER_STREAM_H_
#define QUARRY_COMMON_TRANSPORT_TCP_SERVER_STREAM_H_

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "common/transport/tcp/stream.h"
#include "common/transport/transfer_inbox.h"
#include "common/transport/transport.h"

namespace quarry::transport::tcp {

class ServerStream : public FrameSink, public TransferInbox {
 public:
  ServerStream(UniqueFd fd, EventLoop* loop, std::function<void(absl::Status)> on_broken);

 private:
  // A read that the client has been asked for.
  struct Pulled {
    std::unique_ptr<Transfer> transfer;
    Segment slot;
  };
  class SlotWrite;

  // The rest on the loop's thread.
  void Open() override { stream_.Open(); }
  void Work() override { stream_.Flush(); }
  void Cancel(uint64_t request) override;
  void Close() override;
  void TakeInbox();
  void Begin(std::unique_ptr<Transfer> transfer);
  void OnStreamBroken(const absl::Status& status);
  void FinishAll(TransferStatus status);
  void EndPull(ItemId id, TransferStatus status, uint64_t client_root);

  Find FindLanding(ItemId id, Landing* landing) override;
  void OnReceived(ItemId id, const ItemMeta& meta, bool intact) override;
  void OnBroken(ItemId id, bool wrong_size) override;
  absl::Status OnPull(ItemId id) override;
  absl::Status OnAbort(ItemId id) override;

  const std::function<void(absl::Status)> on_broken_;
  std::unordered_map<ItemId, Pulled, ItemIdHash> pulled_;
  Stream stream_;
};

}  // namespace quarry::transport::tcp

#endif  // QUARRY_COMMON_TRANSPORT_TCP_SERVER_STREAM_H_
