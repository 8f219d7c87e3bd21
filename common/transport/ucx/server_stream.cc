#include "common/transport/ucx/server_stream.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/random.h"
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
    answer = {Greeting::Kind::kIntroduction, token_, version.major, version.minor, worker_->address()};
  } else {
    answer = {Greeting::Kind::kRefusal, 0, 0, 0, std::string(accepted.message())};
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
  if (transfer->kind == Transfer::Kind::kWrite) {
    Write(std::move(transfer));
  } else {
    Pull(std::move(transfer));
  }
}

void ServerStream::Write(std::unique_ptr<Transfer> transfer) {
  Count(transfer->bytes);
  const tcp::ItemMeta meta = tcp::MetaOf(*transfer);
  auto* sending = new Sending{std::move(transfer), {}, nullptr};
  sending->slot = {sending->transfer->data, sending->transfer->bytes, 0, 1};
  sending->message =
      std::make_unique<ItemMessage>(client_token_, sending->transfer->id, meta, absl::MakeConstSpan(&sending->slot, 1));
  worker_->Send(endpoint_, sending->message->header(), sending->message->segments(),
                [self = Self(), sending](ucs_status_t status) { self->EndWrite(sending, status == UCS_OK); });
}

void ServerStream::EndWrite(Sending* sending, bool sent) {
  const std::unique_ptr<Sending> ended(sending);
  Uncount(ended->transfer->bytes);
  Finish(std::move(ended->transfer), sent ? TransferStatus::kOk : TransferStatus::kClosed);
}

void ServerStream::Pull(std::unique_ptr<Transfer> transfer) {
  const ItemId id = transfer->id;
  // Twice at once: what comes could not be told apart.
  if (pulled_.contains(id)) return Finish(std::move(transfer), TransferStatus::kCancelled);
  Count(transfer->bytes);
  const Segment slot{transfer->data, transfer->bytes, 0, 1};
  pulled_.emplace(id, Pulled{std::move(transfer), nullptr, slot});
  std::string header;
  EncodeMessage({.token = client_token_, .id = id, .type = MessageType::kPull}, &header);
  // Where it fails, so does the endpoint.
  worker_->Send(endpoint_, std::move(header), {}, [](ucs_status_t) {});
}

void ServerStream::OnMessage(const Message& message, absl::Span<const std::byte> meta, Arrival* arrival) {
  if (endpoint_ == nullptr) return;
  switch (message.type) {
    case MessageType::kData:
      return OnData(message, meta, arrival);
    case MessageType::kAbort: {
      const auto found = pulled_.find(message.id);
      if (found != pulled_.end() && found->second.landing == nullptr)
        EndPull(message.id, TransferStatus::kCancelled, 0);
      return;
    }
    case MessageType::kPull:
      return Break(absl::InvalidArgumentError("a client sent a pull"));
  }
}

void ServerStream::OnData(const Message& message, absl::Span<const std::byte> meta, Arrival* arrival) {
  const auto found = pulled_.find(message.id);
  // What was cancelled after it had been asked for still comes.
  if (found == pulled_.end() || found->second.landing != nullptr) return;
  Pulled& pulled = found->second;
  auto landing = std::make_unique<ItemLanding>(message, meta);
  if (landing->ItemBytes(*arrival) != pulled.transfer->bytes) {
    return EndPull(message.id, TransferStatus::kWrongSize, 0);
  }
  pulled.landing = std::move(landing);
  pulled.landing->Land(worker_.get(), arrival, absl::MakeConstSpan(&pulled.slot, 1),
                       [self = Self(), id = message.id](bool landed) { self->EndLanding(id, landed); });
}

void ServerStream::EndLanding(ItemId id, bool landed) {
  const Pulled& pulled = pulled_.find(id)->second;
  if (!landed || pulled.cancelled) {
    return EndPull(id, landed ? TransferStatus::kCancelled : TransferStatus::kClosed, 0);
  }
  ItemLanding& landing = *pulled.landing;
  absl::Status status;
  const ItemLanding::Outcome outcome = landing.Check(/*verify=*/true, pulled.transfer->sums, &status);
  const tcp::ItemMeta& meta = landing.meta();
  if (outcome == ItemLanding::Outcome::kBroken) {
    EndPull(id, TransferStatus::kClosed, 0);
    return Break(status);
  }
  if (meta.range.bytes != meta.range.payload_bytes) return EndPull(id, TransferStatus::kWrongSize, 0);
  EndPull(id, outcome == ItemLanding::Outcome::kIntact ? TransferStatus::kOk : TransferStatus::kChecksum,
          meta.sums.empty() ? 0 : meta.root);
}

void ServerStream::EndPull(ItemId id, TransferStatus status, uint64_t client_root) {
  auto node = pulled_.extract(id);
  std::unique_ptr<Transfer> transfer = std::move(node.mapped().transfer);
  Uncount(transfer->bytes);
  transfer->root = client_root;
  Finish(std::move(transfer), status);
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
  for (auto& [id, pulled] : pulled_) {
    if (id.request != request) continue;
    pulled.cancelled = true;
    if (pulled.landing == nullptr) asked.push_back(id);
  }
  for (const ItemId& id : asked) EndPull(id, TransferStatus::kCancelled, 0);
  for (auto& transfer : ended) Finish(std::move(transfer), TransferStatus::kCancelled);
  Work();
}

void ServerStream::Close() {
  broken_ = true;
  side_.Close();
  if (worker_ != nullptr) worker_->RemoveSink(token_);
  if (endpoint_ != nullptr) worker_->Linger(std::exchange(endpoint_, nullptr));
  if (stuck_timer_ != 0) loop()->CancelTimer(std::exchange(stuck_timer_, 0));
  std::vector<std::unique_ptr<Transfer>> ended = CloseInbox();
  for (auto& transfer : queue_) ended.push_back(std::move(transfer));
  queue_.clear();
  std::vector<ItemId> asked;
  for (const auto& [id, pulled] : pulled_) {
    if (pulled.landing == nullptr) asked.push_back(id);
  }
  for (const ItemId& id : asked) EndPull(id, TransferStatus::kClosed, 0);
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
