#include "common/transport/tcp/server_stream.h"

#include <utility>

namespace quarry::transport::tcp {

// A write on its way out.
class ServerStream::SlotWrite : public Outgoing {
 public:
  SlotWrite(ServerStream* stream, std::unique_ptr<Transfer> transfer)
      : stream_(stream), transfer_(std::move(transfer)), slot_{transfer_->data, transfer_->bytes, 0, 1} {
    id = transfer_->id;
    segments = absl::MakeConstSpan(&slot_, 1);
    bytes = transfer_->bytes;
    deadline_ns = transfer_->deadline_ns;
  }

  ItemMeta Meta() override { return MetaOf(*transfer_); }

  void Done(TransferStatus status) override { stream_->Finish(std::move(transfer_), status); }

 private:
  ServerStream* const stream_;
  std::unique_ptr<Transfer> transfer_;
  const Segment slot_;
};

ServerStream::ServerStream(UniqueFd fd, EventLoop* loop, std::function<void(absl::Status)> on_broken)
    : TransferInbox(loop),
      on_broken_(std::move(on_broken)),
      stream_(
          std::move(fd), loop, this, [this] { TakeInbox(); },
          [this](const absl::Status& status) { OnStreamBroken(status); }) {}

void ServerStream::TakeInbox() {
  for (auto& transfer : TakeStarted()) Begin(std::move(transfer));
}

void ServerStream::Begin(std::unique_ptr<Transfer> transfer) {
  if (!transfer->Prepare()) {
    Finish(std::move(transfer), TransferStatus::kChecksum);
    return;
  }
  if (transfer->kind == Transfer::Kind::kWrite) {
    stream_.writer().Push(std::make_unique<SlotWrite>(this, std::move(transfer)));
    return;
  }
  if (IsLate(*transfer)) {
    Finish(std::move(transfer), TransferStatus::kCancelled);
    return;
  }
  const ItemId id = transfer->id;
  if (pulled_.contains(id)) {  // twice at once: what comes could not be told apart
    Finish(std::move(transfer), TransferStatus::kCancelled);
    return;
  }
  const Segment slot{transfer->data, transfer->bytes, 0, 1};
  pulled_.emplace(id, Pulled{std::move(transfer), slot});
  stream_.writer().PushSignal(FrameType::kPull, id);
}

void ServerStream::EndPull(ItemId id, TransferStatus status, uint64_t client_root) {
  auto node = pulled_.extract(id);
  if (node.empty()) return;
  node.mapped().transfer->root = client_root;
  Finish(std::move(node.mapped().transfer), status);
}

void ServerStream::Cancel(uint64_t request) {
  TakeInbox();
  stream_.reader().Abandon(request);
  stream_.writer().Cancel(request);
  std::vector<ItemId> ended;
  for (const auto& [id, pulled] : pulled_) {
    if (id.request == request) ended.push_back(id);
  }
  for (const ItemId& id : ended) EndPull(id, TransferStatus::kCancelled, 0);
  stream_.Flush();
}

void ServerStream::Close() {
  stream_.Close();
  FinishAll(TransferStatus::kClosed);
}

void ServerStream::OnStreamBroken(const absl::Status& status) {
  FinishAll(TransferStatus::kClosed);
  on_broken_(status);
}

void ServerStream::FinishAll(TransferStatus status) {
  for (auto& transfer : CloseInbox()) Finish(std::move(transfer), status);
  while (!pulled_.empty()) EndPull(pulled_.begin()->first, status, 0);
}

FrameSink::Find ServerStream::FindLanding(ItemId id, Landing* landing) {
  auto it = pulled_.find(id);
  // What was cancelled after it had been asked for still comes.
  if (it == pulled_.end()) return Find::kDiscard;
  landing->segments = absl::MakeConstSpan(&it->second.slot, 1);
  landing->bytes = it->second.transfer->bytes;
  landing->sums = it->second.transfer->sums;
  return Find::kLand;
}

void ServerStream::OnReceived(ItemId id, const ItemMeta& meta, bool intact) {
  EndPull(id, intact ? TransferStatus::kOk : TransferStatus::kChecksum, meta.sums.empty() ? 0 : meta.root);
}

void ServerStream::OnBroken(ItemId id, bool wrong_size) {
  EndPull(id, wrong_size ? TransferStatus::kWrongSize : TransferStatus::kCancelled, 0);
}

absl::Status ServerStream::OnPull(ItemId) { return absl::InvalidArgumentError("a client sent a pull frame"); }

absl::Status ServerStream::OnAbort(ItemId id) {
  EndPull(id, TransferStatus::kCancelled, 0);
  return absl::OkStatus();
}

}  // namespace quarry::transport::tcp
