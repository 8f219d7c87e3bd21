#include "common/transport/ucx/server_stream.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "common/transport/ucx/lanes.h"
#include "common/units.h"

namespace quarry::transport::ucx {

// A write on its way out.
struct ServerStream::Sending {
  std::unique_ptr<Transfer> transfer;
  Segment slot;
  std::unique_ptr<ItemMessage> message;
};

ServerStream::ServerStream(UniqueFd fd, EventLoop* loop, std::shared_ptr<Host> host, int64_t stuck_ns,
                           std::function<void()> on_ready, std::function<void(absl::Status)> on_broken)
    : TransferInbox(loop),
      host_(std::move(host)),
      stuck_ns_(stuck_ns),
      on_ready_(std::move(on_ready)),
      on_broken_(std::move(on_broken)),
      side_(
          std::move(fd), loop, [this](const Greeting& greeting) { OnGreeting(greeting); },
          [this](const absl::Status& status) { Break(status); }) {}

void ServerStream::OnGreeting(const Greeting& greeting) {
  const absl::Status accepted = Accept(greeting);
  Greeting answer;
  if (accepted.ok()) {
    const Version& version = host_->context()->api().version;
    answer = {Greeting::Kind::kIntroduction, token_, version.major, version.minor, rma_, worker_->address()};
  } else {
    answer = {.kind = Greeting::Kind::kRefusal, .text = std::string(accepted.message())};
  }
  if (accepted.ok()) on_ready_();
  side_.Send(answer);
}

absl::Status ServerStream::Accept(const Greeting& greeting) {
  if (greeting.kind != Greeting::Kind::kIntroduction) return absl::InvalidArgumentError("a client introduces itself");
  const Version& version = host_->context()->api().version;
  const Greeting mine{.major = version.major, .minor = version.minor};
  if (absl::Status status = CheckVersions(mine, greeting); !status.ok()) return status;
  auto worker = host_->WorkerOf(loop());
  if (!worker.ok()) return worker.status();
  worker_ = *std::move(worker);
  // Nobody else's messages may pass for this client's.
  std::memcpy(&token_, SecureRandomBytes(sizeof token_).data(), sizeof token_);
  client_token_ = greeting.token;
  auto endpoint = worker_->Connect(greeting.text, [weak = std::weak_ptr(Self())](const absl::Status& status) {
    if (const auto self = weak.lock(); self != nullptr) self->Break(status);
  });
  if (!endpoint.ok()) return endpoint.status();
  endpoint_ = *std::move(endpoint);
  const Context& context = *host_->context();
  rma_ = greeting.rma && context.can_rma() && MovesByRma(context.rma(), worker_->HasRdmaLane(*endpoint_));
  worker_->AddSink(token_, this);
  return absl::OkStatus();
}

void ServerStream::TakeInbox() {
  for (auto& transfer : TakeStarted()) queue_.push_back(std::move(transfer));
}

void ServerStream::Work() {
  TakeInbox();
  while (endpoint_ != nullptr && !queue_.empty() && HasRoom()) {
    std::unique_ptr<Transfer> next = std::move(queue_.front());
    queue_.pop_front();
    Begin(std::move(next));
  }
}

void ServerStream::Begin(std::unique_ptr<Transfer> transfer) {
  if (IsLate(*transfer)) return Finish(std::move(transfer), TransferStatus::kCancelled);
  transfer->carrier = Carrier::kUcx;
  if (!transfer->Prepare()) return Finish(std::move(transfer), TransferStatus::kChecksum);
  // An item that was asked about and has not ended: answers could not be told apart.
  const bool asked = asked_.contains(transfer->id);
  const bool write = transfer->kind == Transfer::Kind::kWrite;
  if (asked && !write) return Finish(std::move(transfer), TransferStatus::kCancelled);
  Count(transfer->bytes);
  if (write && (asked || !rma_)) return Write(std::move(transfer));
  Ask(std::move(transfer));
}

void ServerStream::Write(std::unique_ptr<Transfer> transfer) {
  const tcp::ItemMeta meta = tcp::MetaOf(*transfer);
  auto* sending = new Sending{std::move(transfer), {}, nullptr};
  sending->slot = {sending->transfer->data, sending->transfer->bytes, 0, 1};
  sending->message = std::make_unique<ItemMessage>(client_token_, MessageType::kData, sending->transfer->id, meta,
                                                   absl::MakeConstSpan(&sending->slot, 1));
  worker_->Send(endpoint_, sending->message->header(), sending->message->segments(),
                [self = Self(), sending](ucs_status_t status) { self->EndWrite(sending, status == UCS_OK); });
}

void ServerStream::EndWrite(Sending* sending, bool sent) {
  const std::unique_ptr<Sending> ended(sending);
  Uncount(ended->transfer->bytes);
  Finish(std::move(ended->transfer), sent ? TransferStatus::kOk : TransferStatus::kClosed);
}

void ServerStream::Ask(std::unique_ptr<Transfer> transfer) {
  const ItemId id = transfer->id;
  const bool write = transfer->kind == Transfer::Kind::kWrite;
  const Segment slot{transfer->data, transfer->bytes, 0, 1};
  asked_.emplace(id, Asked{.transfer = std::move(transfer), .slot = slot, .landing = nullptr, .place = {}});
  Say(write ? MessageType::kOffer : MessageType::kPull, id);
}

void ServerStream::Say(MessageType type, ItemId id, absl::string_view rest) {
  if (endpoint_ == nullptr) return;
  std::string header;
  EncodeMessage({.token = client_token_, .id = id, .type = type}, &header);
  header.append(rest.data(), rest.size());
  // Where it fails, so does the endpoint.
  worker_->Send(endpoint_, std::move(header), {}, [](ucs_status_t) {});
}

void ServerStream::OnMessage(const Message& message, absl::Span<const std::byte> meta, Arrival* arrival) {
  if (endpoint_ == nullptr) return;
  switch (message.type) {
    case MessageType::kData:
      return OnData(message, meta, arrival);
    case MessageType::kAbort: {
      const auto found = asked_.find(message.id);
      if (found != asked_.end() && found->second.landing == nullptr) EndAsked(message.id, TransferStatus::kCancelled);
      return;
    }
    case MessageType::kPlace:
      return OnPlace(message, meta, arrival);
    case MessageType::kElsewhere:
      return OnElsewhere(message.id);
    case MessageType::kRegion:
      return OnRegion(message.id.item, meta);
    case MessageType::kUnregion:
      return regions_.Remove(message.id.item);
    default:
      return Break(
          absl::InvalidArgumentError(absl::StrCat("type: a client sent ", static_cast<uint32_t>(message.type))));
  }
}

void ServerStream::OnData(const Message& message, absl::Span<const std::byte> meta, Arrival* arrival) {
  const auto found = asked_.find(message.id);
  // What was cancelled after it had been asked for still comes.
  if (found == asked_.end() || found->second.landing != nullptr) return;
  Asked& asked = found->second;
  if (asked.transfer->kind == Transfer::Kind::kWrite) {
    return Break(absl::InvalidArgumentError("a client sent an item that it was offered"));
  }
  auto landing = std::make_unique<ItemLanding>(message, meta);
  if (landing->DataBytes(*arrival) != asked.transfer->bytes) {
    return EndAsked(message.id, TransferStatus::kWrongSize);
  }
  asked.landing = std::move(landing);
  asked.landing->Land(worker_.get(), arrival, absl::MakeConstSpan(&asked.slot, 1),
                      [self = Self(), id = message.id](bool landed) { self->EndLanding(id, landed); });
}

void ServerStream::OnElsewhere(ItemId id) {
  const auto found = asked_.find(id);
  if (found == asked_.end() || found->second.landing != nullptr) return;
  if (found->second.transfer->kind == Transfer::Kind::kRead) {
    return Break(absl::InvalidArgumentError("a client knows another place for an item that it was asked for"));
  }
  auto node = asked_.extract(found);
  Write(std::move(node.mapped().transfer));
}

void ServerStream::OnPlace(const Message& message, absl::Span<const std::byte> meta, Arrival* arrival) {
  const ItemId id = message.id;
  const auto found = asked_.find(id);
  if (found == asked_.end()) return Release(id);  // cancelled after it had been asked about
  Asked& asked = found->second;
  if (asked.landing != nullptr) return Break(absl::InvalidArgumentError("a client placed an item twice"));
  asked.landing = std::make_unique<ItemLanding>(message, meta);
  const size_t bytes = asked.landing->DataBytes(*arrival);
  if (bytes % sizeof(Descriptor) != 0 || bytes / sizeof(Descriptor) > kMaxPlaceDescriptors) {
    return EndMalformed(id,
                        absl::InvalidArgumentError(absl::StrCat("descriptors: at most ", kMaxPlaceDescriptors, " of ",
                                                                sizeof(Descriptor), " bytes, got ", bytes, " bytes")));
  }
  asked.place.resize(bytes / sizeof(Descriptor));
  const Segment place{reinterpret_cast<std::byte*>(asked.place.data()), bytes};
  asked.landing->Land(worker_.get(), arrival, absl::MakeConstSpan(&place, bytes > 0 ? 1 : 0),
                      [self = Self(), id](bool landed) { self->EndPlace(id, landed); });
}

void ServerStream::EndPlace(ItemId id, bool landed) {
  Asked& asked = asked_.find(id)->second;
  if (!landed || endpoint_ == nullptr) return EndAsked(id, TransferStatus::kClosed);
  if (absl::Status status = asked.landing->ReadMeta(); !status.ok()) return EndMalformed(id, status);
  const bool right_size = asked.landing->meta().range.bytes == asked.transfer->bytes;
  if (right_size && !asked.cancelled) return Move(id, asked);
  Release(id);
  if (asked.cancelled) return EndAsked(id, TransferStatus::kCancelled);
  if (asked.transfer->kind == Transfer::Kind::kRead) return EndAsked(id, TransferStatus::kWrongSize);
  asked.landing = nullptr;
  OnElsewhere(id);  // the client sees for itself what is wrong
}

void ServerStream::Move(ItemId id, Asked& asked) {
  Transfer& transfer = *asked.transfer;
  auto found = regions_.Find(asked.place, transfer.bytes);
  if (!found.ok()) return EndMalformed(id, found.status());
  // Keeps the keys, whatever the client unregisters meanwhile.
  const auto runs = std::make_shared<const std::vector<RemoteRun>>(*std::move(found));
  worker_->Move(transfer.kind == Transfer::Kind::kWrite ? Worker::Direction::kPut : Worker::Direction::kGet, endpoint_,
                transfer.data, *runs,
                [self = Self(), id, runs](ucs_status_t status) { self->EndMove(id, status == UCS_OK); });
}

void ServerStream::EndMove(ItemId id, bool moved) {
  Asked& asked = asked_.find(id)->second;
  if (!moved) return EndMalformed(id, absl::UnavailableError("RMA has failed"));
  const bool write = asked.transfer->kind == Transfer::Kind::kWrite;
  if (write && !asked.cancelled) {
    SayWritten(*asked.transfer);
    return EndAsked(id, TransferStatus::kOk);
  }
  Release(id);
  if (write) return EndAsked(id, TransferStatus::kCancelled);
  EndLanding(id, true);
}

void ServerStream::Release(ItemId id) { Say(MessageType::kReleased, id); }

void ServerStream::SayWritten(const Transfer& transfer) {
  if (endpoint_ == nullptr) return;
  const auto message = std::make_shared<const ItemMessage>(client_token_, MessageType::kWritten, transfer.id,
                                                           tcp::MetaOf(transfer), absl::Span<const Segment>());
  worker_->Send(endpoint_, message->header(), message->segments(), [message](ucs_status_t) {});
}

void ServerStream::OnRegion(uint32_t key, absl::Span<const std::byte> in) {
  RegionClaim claim;
  absl::Status status = DecodeRegionClaim(in, &claim);
  if (!rma_) status = absl::FailedPreconditionError("region: items of this session do not move by RMA");
  if (!status.ok()) return Break(status);
  status = regions_.Admit(key, claim);
  if (status.ok()) {
    auto remote = worker_->Unpack(endpoint_, claim.packed);
    status = remote.status();
    if (remote.ok()) regions_.Add(key, claim, *std::move(remote));
  }
  Say(MessageType::kRegionReply, {0, key}, status.message());
}

void ServerStream::EndLanding(ItemId id, bool landed) {
  Asked& asked = asked_.find(id)->second;
  if (!landed || asked.cancelled) {
    return EndAsked(id, landed ? TransferStatus::kCancelled : TransferStatus::kClosed);
  }
  ItemLanding& landing = *asked.landing;
  absl::Status status;
  const ItemLanding::Outcome outcome = landing.Check(absl::MakeConstSpan(&asked.slot, 1), asked.transfer->bytes,
                                                     /*verify=*/true, asked.transfer->sums, &status);
  const tcp::ItemMeta& meta = landing.meta();
  if (outcome == ItemLanding::Outcome::kBroken) return EndMalformed(id, status);
  if (meta.range.bytes != meta.range.payload_bytes) return EndAsked(id, TransferStatus::kWrongSize);
  EndAsked(id, outcome == ItemLanding::Outcome::kIntact ? TransferStatus::kOk : TransferStatus::kChecksum,
           meta.sums.empty() ? 0 : meta.root);
}

void ServerStream::EndAsked(ItemId id, TransferStatus status, uint64_t client_root) {
  auto node = asked_.extract(id);
  std::unique_ptr<Transfer> transfer = std::move(node.mapped().transfer);
  Uncount(transfer->bytes);
  transfer->root = client_root;
  Finish(std::move(transfer), status);
}

void ServerStream::EndMalformed(ItemId id, const absl::Status& status) {
  EndAsked(id, TransferStatus::kClosed);
  Break(status);
}

void ServerStream::Count(size_t bytes) {
  ++under_way_;
  bytes_ += bytes;
  if (stuck_timer_ == 0) LookIfStuck();
}

void ServerStream::Uncount(size_t bytes) {
  --under_way_;
  bytes_ -= bytes;
  ++ended_;
  if (!queue_.empty()) PostWork();
}

void ServerStream::LookIfStuck() {
  const bool looked_before = stuck_timer_ != 0;
  stuck_timer_ = 0;
  if (endpoint_ == nullptr || under_way_ == 0) return;
  if (looked_before && ended_ == ended_when_looked_) {
    return Break(absl::DeadlineExceededError(
        absl::StrCat("the client has taken nothing of what was on its way for ", FormatDuration(stuck_ns_))));
  }
  ended_when_looked_ = ended_;
  stuck_timer_ = loop()->After(stuck_ns_, [weak = std::weak_ptr(Self())] {
    if (const auto self = weak.lock(); self != nullptr) self->LookIfStuck();
  });
}

void ServerStream::Cancel(uint64_t request) {
  TakeInbox();
  std::vector<std::unique_ptr<Transfer>> ended;
  for (auto& transfer : queue_) {
    if (transfer->id.request == request) ended.push_back(std::move(transfer));
  }
  std::erase(queue_, nullptr);
  std::vector<ItemId> asked;
  for (auto& [id, item] : asked_) {
    if (id.request != request) continue;
    item.cancelled = true;
    if (item.landing == nullptr) asked.push_back(id);
  }
  for (const ItemId& id : asked) EndAsked(id, TransferStatus::kCancelled);
  for (auto& transfer : ended) Finish(std::move(transfer), TransferStatus::kCancelled);
  Work();
}

void ServerStream::Close() {
  broken_ = true;
  side_.Close();
  if (worker_ != nullptr) worker_->RemoveSink(token_);
  regions_.Clear();
  if (endpoint_ != nullptr) worker_->Linger(std::exchange(endpoint_, nullptr));
  if (stuck_timer_ != 0) loop()->CancelTimer(std::exchange(stuck_timer_, 0));
  std::vector<std::unique_ptr<Transfer>> ended = CloseInbox();
  for (auto& transfer : queue_) ended.push_back(std::move(transfer));
  queue_.clear();
  std::vector<ItemId> asked;
  for (const auto& [id, item] : asked_) {
    if (item.landing == nullptr) asked.push_back(id);
  }
  for (const ItemId& id : asked) EndAsked(id, TransferStatus::kClosed);
  for (auto& transfer : ended) Finish(std::move(transfer), TransferStatus::kClosed);
}

void ServerStream::Break(const absl::Status& status) {
  loop()->Post([self = Self(), status] {
    if (self->broken_) return;
    self->Close();
    self->on_broken_(status);
  });
}

}  // namespace quarry::transport::ucx
