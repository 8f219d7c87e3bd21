#include "common/transport/tcp/client_stream.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace quarry::transport::tcp {

// A put's item on its way out.
class ClientStream::ItemSend : public Outgoing {
 public:
  ItemSend(ClientStream* stream, std::shared_ptr<ExposedRequest> exposed, ItemId item_id)
      : stream_(stream), exposed_(std::move(exposed)), item_(*exposed_->item(item_id.item)) {
    id = item_id;
    segments = item_.segments;
    bytes = item_.bytes;
  }

  // The whole item is summed before its first byte is sent. A chunk that is overwritten
  // between the two no longer has the sum that the server will check.
  ItemMeta Meta() override { return SumSource(item_, &sums_); }

  void Done(TransferStatus status) override {
    if (status == TransferStatus::kCancelled) stream_->stream_.writer().PushSignal(FrameType::kAbort, id);
    stream_->table_->EndUse(id.request);
    if (status == TransferStatus::kOk) exposed_->OnItemSent(id.item);
  }

 private:
  ClientStream* const stream_;
  const std::shared_ptr<ExposedRequest> exposed_;
  const ExposedRequest::Item& item_;
  std::vector<uint64_t> sums_;
};

ClientStream::ClientStream(UniqueFd fd, EventLoop* loop, std::shared_ptr<ExposedTable> table,
                           std::function<void(absl::Status)> on_broken)
    : table_(std::move(table)),
      stream_(
          std::move(fd), loop, this, [] {},
          [this, broken = std::move(on_broken)](const absl::Status& status) {
            EndLanding();
            broken(status);
          }) {}

void ClientStream::Close() {
  stream_.Close();
  EndLanding();
}

void ClientStream::Abandon(uint64_t request) {
  stream_.reader().Abandon(request);
  if (landing_ != nullptr && landing_request_ == request) EndLanding();
  stream_.writer().Cancel(request);
  // Aborts are sent soon; not from here, which may be inside a read.
  if (!stream_.writer().idle()) loop()->Post([self = shared_from_this()] { self->stream_.Flush(); });
}

void ClientStream::EndLanding() {
  if (std::exchange(landing_, nullptr) != nullptr) table_->EndUse(landing_request_);
}

FrameSink::Find ClientStream::FindLanding(ItemId id, Landing* landing) {
  std::shared_ptr<ExposedRequest> exposed = table_->BeginUse(id.request);
  if (exposed == nullptr) return Find::kDiscard;  // withdrawn; what was on its way still comes
  const ExposedRequest::Item* item = exposed->item(id.item);
  if (item == nullptr) {
    table_->EndUse(id.request);
    return Find::kRefuse;
  }
  landing->segments = item->segments;
  landing->bytes = item->bytes;
  landing->checksum = item->checksum;
  landing->owner = exposed;
  landing_ = std::move(exposed);
  landing_request_ = id.request;
  return Find::kLand;
}

void ClientStream::OnReceived(ItemId id, const ItemMeta& meta, bool intact) {
  const std::shared_ptr<ExposedRequest> exposed = landing_;
  EndLanding();
  const ExposedRequest::Item& item = *exposed->item(id.item);
  if (item.checksum && intact) intact = RootHolds(item, meta);
  if (intact) {
    exposed->OnItemArrived(id.item, meta.range.bytes);
  } else {
    exposed->OnItemFailed(id.item, TransferStatus::kChecksum);
  }
}

void ClientStream::OnBroken(ItemId id, bool wrong_size) {
  const std::shared_ptr<ExposedRequest> exposed = landing_;
  EndLanding();
  // A sender that went on has cancelled the item; the control stream tells.
  if (wrong_size && exposed != nullptr) exposed->OnItemFailed(id.item, TransferStatus::kWrongSize);
}

absl::Status ClientStream::OnPull(ItemId id) {
  if (stream_.writer().queued() >= kMaxQueued) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the server pulls more than ", kMaxQueued, " items without reading them"));
  }
  std::shared_ptr<ExposedRequest> exposed = table_->BeginUse(id.request);
  if (exposed == nullptr) {
    stream_.writer().PushSignal(FrameType::kAbort, id);
    return absl::OkStatus();
  }
  if (exposed->item(id.item) == nullptr) {
    table_->EndUse(id.request);
    return absl::InvalidArgumentError("the server pulls an item that the request does not have");
  }
  stream_.writer().Push(std::make_unique<ItemSend>(this, std::move(exposed), id));
  return absl::OkStatus();
}

absl::Status ClientStream::OnAbort(ItemId) { return absl::InvalidArgumentError("a server sent an abort frame"); }

}  // namespace quarry::transport::tcp
