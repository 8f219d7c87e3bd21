// One data stream at the client: lands what the node sends, sends what it pulls.
#ifndef QUARRY_COMMON_TRANSPORT_TCP_CLIENT_STREAM_H_
#define QUARRY_COMMON_TRANSPORT_TCP_CLIENT_STREAM_H_

#include <functional>
#include <memory>
#include <optional>

#include "common/transport/exposed_table.h"
#include "common/transport/tcp/stream.h"

namespace quarry::transport::tcp {

class ClientStream : public FrameSink, public std::enable_shared_from_this<ClientStream> {
 public:
  // Items and aborts on their way out; a node that asks for more without reading is wrong.
  static constexpr size_t kMaxQueued = 1 << 18;

  ClientStream(UniqueFd fd, EventLoop* loop, std::shared_ptr<ExposedTable> table,
               std::function<void(absl::Status)> on_broken);

  EventLoop* loop() const { return stream_.loop(); }

  // On the loop's thread.
  void Open() { stream_.Open(); }
  void Close();
  // Stops touching the request's buffers.
  void Abandon(uint64_t request);

 private:
  class ItemSend;

  void EndLanding();

  Find FindLanding(ItemId id, Landing* landing) override;
  void OnReceived(ItemId id, const ItemMeta& meta, bool intact) override;
  void OnBroken(ItemId id, bool wrong_size) override;
  absl::Status OnPull(ItemId id) override;
  absl::Status OnAbort(ItemId id) override;

  const std::shared_ptr<ExposedTable> table_;
  std::shared_ptr<ExposedRequest> landing_;  // being received; counted as a use in table_
  uint64_t landing_request_ = 0;
  Stream stream_;
};

}  // namespace quarry::transport::tcp

#endif  // QUARRY_COMMON_TRANSPORT_TCP_CLIENT_STREAM_H_
