#include "common/transport/shm/client_stream.h"

#include <sys/epoll.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checksum.h"

namespace quarry::transport::shm {

// Hears of the server's death from the kernel, whoever else holds the connection.
class ClientStream::DeathWatch : public FdHandler {
 public:
  explicit DeathWatch(ClientStream* stream) : stream_(stream) {}
  void Start() {
    watching_ = stream_->shared_->server.pidfd() >= 0;
    if (watching_) stream_->loop()->Add(stream_->shared_->server.pidfd(), EPOLLIN, this);
  }
  void Stop() {
    if (std::exchange(watching_, false)) stream_->loop()->Remove(stream_->shared_->server.pidfd(), this);
  }

 private:
  void OnEvents(uint32_t) override {
    Stop();
    stream_->stream_.Close();
    stream_->End(absl::UnavailableError("the server's process has ended"));
  }

  ClientStream* const stream_;
  bool watching_ = false;
};

ClientStream::ClientStream(UniqueFd fd, EventLoop* loop, std::shared_ptr<ClientShared> shared, bool first)
    : shared_(std::move(shared)),
      watch_(first ? std::make_unique<DeathWatch>(this) : nullptr),
      sums_(ChunkCount(kMaxShardBytes)),
      stream_(std::move(fd), loop, this) {
  ++shared_->open_streams;
}

ClientStream::~ClientStream() = default;

void ClientStream::Open() {
  if (watch_ != nullptr) watch_->Start();
  stream_.Open();
}

void ClientStream::Close() {
  closed_ = true;
  if (timer_ != 0) loop()->CancelTimer(std::exchange(timer_, 0));
  if (watch_ != nullptr) watch_->Stop();
  stream_.Close();
}

void ClientStream::Send(const Message& message, std::vector<UniqueFd> fds) {
  if (!stream_.open()) return;
  stream_.Send(message, std::move(fds));
  stream_.Flush();
}

void ClientStream::OnStreamBroken(const absl::Status& status) {
  // InvalidArgument: it is this end that goes, and the server may not know yet.
  if (!absl::IsInvalidArgument(status)) --shared_->open_streams;
  if (watch_ != nullptr) watch_->Stop();
  End(status);
}

void ClientStream::End(const absl::Status& status) {
  shared_->broken.store(true);
  LookForReleased();
  shared_->on_closed(status);
}

void ClientStream::LookForReleased() {
  timer_ = 0;
  shared_->exposures->ReleaseUnused(shared_->server_gone());
  if (closed_) return;
  timer_ = loop()->After(kLookAgainNs, [this] { LookForReleased(); });
}

absl::Status ClientStream::OnMessage(const Message& message, std::deque<UniqueFd>*) {
  switch (message.type) {
    case MessageType::kWritten:
      return OnWritten(message);
    case MessageType::kWriting:
      return OnWriting(message);
    case MessageType::kWrongSize:
      OnWrongSize(message.id);
      return absl::OkStatus();
    case MessageType::kRead:
      OnRead(message.id);
      return absl::OkStatus();
    case MessageType::kSum:
      return OnSum(message.id);
    case MessageType::kReleased:
      shared_->exposures->ServerReleased(message.id.request);
      return absl::OkStatus();
    case MessageType::kRegionReply:
      shared_->on_region_reply(message.id.item,
                               message.flag != 0 ? absl::OkStatus() : absl::FailedPreconditionError(message.body));
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("message type: a server sent ", static_cast<uint32_t>(message.type)));
  }
}

void ClientStream::OnRoundEnd() {
  summed_ = 0;
  stream_.Flush();
}

absl::Status ClientStream::TakeMeta(const Message& message, tcp::ItemMeta* meta) {
  return tcp::DecodeMeta(
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(message.body.data()), message.body.size()), sums_.data(),
      meta);
}

bool ClientStream::Verify(const std::shared_ptr<ExposedRequest>& exposed, const ExposedRequest::Item& item, ItemId id,
                          const tcp::ItemMeta& meta, size_t arrived) {
  if (!tcp::RootHolds(item, meta)) return false;
  const bool goes_on = verifying_of_.lock() == exposed && verifying_ == id && verifying_root_ == meta.root &&
                       verifying_offset_ == meta.range.offset;
  if (!goes_on) {
    verifier_.Start(item.segments, meta.range, meta.sums, meta.edge_sums, nullptr);
    verifying_ = id;
    verifying_of_ = exposed;
    verifying_root_ = meta.root;
    verifying_offset_ = meta.range.offset;
  }
  verifier_.Advance(arrived);
  return verifier_.intact();
}

// Verified while the server writes the rest.
absl::Status ClientStream::OnWriting(const Message& message) {
  tcp::ItemMeta meta;
  if (absl::Status status = TakeMeta(message, &meta); !status.ok()) return status;
  const ItemId id = message.id;
  const std::shared_ptr<ExposedRequest> exposed = shared_->exposures->BeginUse(id.request);
  if (exposed == nullptr) return absl::OkStatus();  // withdrawn
  const ExposedRequest::Item* item = exposed->item(id.item);
  const bool fits = item != nullptr && meta.range.bytes == item->bytes && message.values[0] < item->bytes;
  if (fits && item->checksum) Verify(exposed, *item, id, meta, message.values[0]);
  shared_->exposures->EndUse(id.request);
  if (!fits) return absl::InvalidArgumentError("the server writes an item that there is not, or of another size");
  return absl::OkStatus();
}

absl::Status ClientStream::OnWritten(const Message& message) {
  tcp::ItemMeta meta;
  if (absl::Status status = TakeMeta(message, &meta); !status.ok()) return status;
  const ItemId id = message.id;
  const std::shared_ptr<ExposedRequest> exposed = shared_->exposures->BeginUse(id.request);
  if (exposed == nullptr) return absl::OkStatus();  // withdrawn
  const ExposedRequest::Item* item = exposed->item(id.item);
  const bool fits = item != nullptr && meta.range.bytes == item->bytes;
  const bool intact = !fits || !item->checksum || Verify(exposed, *item, id, meta, meta.range.bytes);
  verifying_of_.reset();
  shared_->exposures->EndUse(id.request);
  if (!fits) return absl::InvalidArgumentError("the server wrote an item that there is not, or of another size");
  if (intact) {
    exposed->OnItemArrived(id.item, meta.range.bytes);
  } else {
    exposed->OnItemFailed(id.item, TransferStatus::kChecksum);
  }
  return absl::OkStatus();
}

// While the server copies it: a source that changes meanwhile has other sums here than there.
absl::Status ClientStream::OnSum(ItemId id) {
  const std::shared_ptr<ExposedRequest> exposed = shared_->exposures->BeginUse(id.request);
  if (exposed == nullptr) {
    stream_.Send({.type = MessageType::kAbsent, .id = id});
    return absl::OkStatus();
  }
  const ExposedRequest::Item* item = exposed->item(id.item);
  uint64_t root = 0;
  if (item != nullptr) {
    const size_t chunks = ChunkCount(item->bytes);
    if (sums_.size() < chunks) sums_.resize(chunks);
    SumSegments(item->segments, item->bytes, sums_.data());
    root = RootSum(item->identity_seed, item->bytes, absl::MakeConstSpan(sums_.data(), chunks));
    summed_ += item->bytes;
  }
  shared_->exposures->EndUse(id.request);
  if (item == nullptr) return absl::InvalidArgumentError("the server asks for an item that the request does not have");
  stream_.Send({.type = MessageType::kSummed, .id = id, .values = {root, 0, 0}});
  if (summed_ >= kFlushBytes) OnRoundEnd();
  return absl::OkStatus();
}

void ClientStream::OnWrongSize(ItemId id) {
  const std::shared_ptr<ExposedRequest> exposed = shared_->exposures->BeginUse(id.request);
  if (exposed == nullptr) return;
  shared_->exposures->EndUse(id.request);
  if (exposed->item(id.item) != nullptr) exposed->OnItemFailed(id.item, TransferStatus::kWrongSize);
}

void ClientStream::OnRead(ItemId id) {
  const std::shared_ptr<ExposedRequest> exposed = shared_->exposures->BeginUse(id.request);
  if (exposed == nullptr) return;
  shared_->exposures->EndUse(id.request);
  if (exposed->item(id.item) != nullptr) exposed->OnItemSent(id.item);
}

}  // namespace quarry::transport::shm
