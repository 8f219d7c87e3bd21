#include "common/transport/ucx/client_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace quarry::transport::ucx {

// A get's item on its way in. This and Sending are uses in the table.
struct ClientStream::Landing {
  ItemId id;
  std::shared_ptr<ExposedRequest> exposed;
  ItemLanding item;
};

// A put's item on its way out.
struct ClientStream::Sending {
  ItemId id;
  std::shared_ptr<ExposedRequest> exposed;
  size_t bytes = 0;
  std::unique_ptr<ItemMessage> message;
};

ClientStream::ClientStream(UniqueFd fd, std::shared_ptr<Worker> worker, uint64_t token,
                           std::shared_ptr<ExposedTable> table, std::function<void(absl::Status)> on_broken)
    : worker_(std::move(worker)),
      token_(token),
      table_(std::move(table)),
      on_broken_(std::move(on_broken)),
      side_(std::move(fd), worker_->loop(), nullptr, [this](const absl::Status& status) { Break(status); }) {}

absl::Status ClientStream::Open(const Greeting& server) {
  server_token_ = server.token;
  auto endpoint = worker_->Connect(server.text, [weak = weak_from_this()](const absl::Status& status) {
    if (const auto self = weak.lock(); self != nullptr) self->Break(status);
  });
  if (!endpoint.ok()) return endpoint.status();
  endpoint_ = *std::move(endpoint);
  if (server.rma) {
    memory_ = std::make_unique<RegisteredMemory>(
        worker_->context(), loop(),
        [this](MessageType type, uint32_t key, const std::string& rest) {
          Say(type, {0, key}, rest);
        },
        [this] { Break(absl::CancelledError("memory was taken back while the node had it")); });
  }
  worker_->AddSink(token_, this);
  side_.Open();
  return absl::OkStatus();
}

void ClientStream::Close() {
  worker_->RemoveSink(token_);
  side_.Close();
  if (endpoint_ != nullptr) worker_->Linger(std::exchange(endpoint_, nullptr));
  for (const ItemId& id : std::exchange(queue_, {})) table_->EndUse(id.request);
  if (memory_ == nullptr) return;
  // What adapters still write ends with UCX's own end and the mappings'. Nobody else has this worker.
  worker_->Shutdown();
  memory_->End();
  for (const auto& [id, placed] : std::exchange(placed_, {})) table_->EndUse(id.request);
}

void ClientStream::Break(const absl::Status& status) {
  loop()->Post([self = shared_from_this(), status] {
    if (self->endpoint_ == nullptr) return;
    self->Close();
    self->on_broken_(status);
  });
}

void ClientStream::OnMessage(const Message& message, absl::Span<const std::byte> meta, Arrival* arrival) {
  if (endpoint_ == nullptr) return;
  switch (message.type) {
    case MessageType::kData:
      return OnData(message, meta, arrival);
    case MessageType::kPull:
      return OnPull(message.id);
    case MessageType::kOffer:
      return OnOffer(message.id);
    case MessageType::kWritten:
      return OnWritten(message, meta, arrival);
    case MessageType::kReleased:
      return OnReleased(message.id);
    case MessageType::kRegionReply:
      if (memory_ == nullptr) break;
      return memory_->OnReply(message.id.item, meta.empty()
                                                   ? absl::OkStatus()
                                                   : absl::UnavailableError(absl::string_view(
                                                         reinterpret_cast<const char*>(meta.data()), meta.size())));
    default:
      break;
  }
  Break(absl::InvalidArgumentError(absl::StrCat("type: a server sent ", static_cast<uint32_t>(message.type))));
}

void ClientStream::OnData(const Message& message, absl::Span<const std::byte> meta, Arrival* arrival) {
  const ItemId id = message.id;
  std::shared_ptr<ExposedRequest> exposed = table_->BeginUse(id.request);
  if (exposed == nullptr) return;  // withdrawn; what was on its way still comes
  const ExposedRequest::Item* item = exposed->item(id.item);
  if (item == nullptr) {
    table_->EndUse(id.request);
    return Break(
        absl::InvalidArgumentError(absl::StrCat("request ", id.request, " has no item ", id.item, " to receive")));
  }
  auto* landing = new Landing{id, exposed, ItemLanding(message, meta)};
  if (landing->item.DataBytes(*arrival) != item->bytes) {
    delete landing;
    table_->EndUse(id.request);
    return exposed->OnItemFailed(id.item, TransferStatus::kWrongSize);
  }
  landing->item.Land(worker_.get(), arrival, item->segments,
                     [self = shared_from_this(), landing](bool landed) { self->EndLanding(landing, landed); });
}

void ClientStream::EndLanding(Landing* landing, bool landed) {
  const std::unique_ptr<Landing> ended(landing);
  const auto [id, exposed] = std::pair(ended->id, ended->exposed);
  if (!landed) return table_->EndUse(id.request);  // the endpoint has failed, or was closed
  const ExposedRequest::Item& item = *exposed->item(id.item);
  absl::Status status;
  const ItemLanding::Outcome outcome = ended->item.Check(item.segments, item.bytes, item.checksum, nullptr, &status);
  table_->EndUse(id.request);
  if (outcome == ItemLanding::Outcome::kBroken) return Break(status);
  const tcp::ItemMeta& meta = ended->item.meta();
  bool intact = outcome == ItemLanding::Outcome::kIntact;
  if (item.checksum && intact) intact = tcp::RootHolds(item, meta);
  if (intact) {
    exposed->OnItemArrived(id.item, meta.range.bytes);
  } else {
    exposed->OnItemFailed(id.item, TransferStatus::kChecksum);
  }
}

void ClientStream::OnPull(ItemId id) {
  if (queue_.size() >= kMaxQueued) {
    return Break(absl::ResourceExhaustedError(
        absl::StrCat("the server pulls more than ", kMaxQueued, " items without taking them")));
  }
  const std::shared_ptr<ExposedRequest> exposed = table_->BeginUse(id.request);
  if (exposed == nullptr) return Say(MessageType::kAbort, id);
  if (exposed->item(id.item) == nullptr) {
    table_->EndUse(id.request);
    return Break(absl::InvalidArgumentError("the server pulls an item that the request does not have"));
  }
  queue_.push_back(id);
  SendQueued();
}

void ClientStream::SendQueued() {
  while (endpoint_ != nullptr && !queue_.empty() && sending_bytes_ < kWindowBytes) {
    const ItemId id = queue_.front();
    queue_.pop_front();
    std::shared_ptr<ExposedRequest> exposed = table_->BeginUse(id.request);
    table_->EndUse(id.request);  // the use that the queue had
    if (exposed == nullptr) {
      Say(MessageType::kAbort, id);
    } else {
      Send(id, std::move(exposed));
    }
  }
}

// The whole item is summed before its first byte is sent. A chunk that is overwritten between the
// two no longer has the sum that the server will check.
void ClientStream::Send(ItemId id, std::shared_ptr<ExposedRequest> exposed) {
  const ExposedRequest::Item& item = *exposed->item(id.item);
  std::vector<uint64_t> sums;
  const tcp::ItemMeta meta = tcp::SumSource(item, &sums);
  if (Place(id, exposed, meta, /*put=*/true)) return;
  sending_bytes_ += item.bytes;
  auto* sending = new Sending{id, std::move(exposed), item.bytes, nullptr};
  sending->message = std::make_unique<ItemMessage>(server_token_, MessageType::kData, id, meta, item.segments);
  worker_->Send(
      endpoint_, sending->message->header(), sending->message->segments(),
      [self = shared_from_this(), sending](ucs_status_t status) { self->EndSend(sending, status == UCS_OK); });
}

void ClientStream::EndSend(Sending* sending, bool sent) {
  const std::unique_ptr<Sending> ended(sending);
  sending_bytes_ -= ended->bytes;
  table_->EndUse(ended->id.request);
  if (sent) ended->exposed->OnItemSent(ended->id.item);
  if (queue_.empty() || std::exchange(send_posted_, true)) return;
  loop()->Post([self = shared_from_this()] {
    self->send_posted_ = false;
    self->SendQueued();
  });
}

void ClientStream::OnOffer(ItemId id) {
  const std::shared_ptr<ExposedRequest> exposed = table_->BeginUse(id.request);
  if (exposed == nullptr) return Say(MessageType::kAbort, id);
  const ExposedRequest::Item* item = exposed->item(id.item);
  const bool placed =
      item != nullptr &&
      Place(id, exposed, {.root = 0, .range = {0, item->bytes, item->bytes}, .edge_sums = {0, 0}, .sums = {}},
            /*put=*/false);
  if (placed) return;
  table_->EndUse(id.request);
  if (item == nullptr) return Break(absl::InvalidArgumentError("an offer of an item that the request does not have"));
  Say(MessageType::kElsewhere, id);
}

bool ClientStream::Place(ItemId id, const std::shared_ptr<ExposedRequest>& exposed, const tcp::ItemMeta& meta,
                         bool put) {
  Placed placed{exposed, {}, put};
  if (memory_ == nullptr || placed_.contains(id)) return false;
  if (!memory_->BeginUse(exposed->item(id.item)->segments, &placed.descriptors)) return false;
  struct Sent {
    std::vector<Descriptor> descriptors;
    Segment segment;
    std::unique_ptr<ItemMessage> message;
  };
  const auto sent = std::make_shared<Sent>(Sent{placed.descriptors, {}, nullptr});
  placed_.emplace(id, std::move(placed));
  sent->segment = {reinterpret_cast<std::byte*>(sent->descriptors.data()),
                   sent->descriptors.size() * sizeof(Descriptor)};
  sent->message = std::make_unique<ItemMessage>(server_token_, MessageType::kPlace, id, meta,
                                                absl::MakeConstSpan(&sent->segment, 1));
  // Where it fails, so does the endpoint.
  worker_->Send(endpoint_, sent->message->header(), sent->message->segments(), [sent](ucs_status_t) {});
  return true;
}

void ClientStream::OnWritten(const Message& message, absl::Span<const std::byte> meta, Arrival* arrival) {
  const ItemId id = message.id;
  const auto found = placed_.find(id);
  ItemLanding item(message, meta);
  if (found == placed_.end() || found->second.put || item.DataBytes(*arrival) != 0) {
    return Break(absl::InvalidArgumentError("the server has written what was not there to be written"));
  }
  memory_->EndUse(found->second.descriptors);
  auto* landing = new Landing{id, std::move(found->second.exposed), std::move(item)};
  placed_.erase(found);
  landing->item.Land(worker_.get(), arrival, {},
                     [self = shared_from_this(), landing](bool landed) { self->EndLanding(landing, landed); });
}

void ClientStream::OnReleased(ItemId id) {
  const auto placed = placed_.extract(id);
  if (placed.empty()) return Break(absl::InvalidArgumentError("the server releases what it does not have"));
  const Placed& item = placed.mapped();
  memory_->EndUse(item.descriptors);
  table_->EndUse(id.request);
  if (item.put) item.exposed->OnItemSent(id.item);
}

void ClientStream::Say(MessageType type, ItemId id, absl::string_view rest) {
  if (endpoint_ == nullptr) return;
  std::string header;
  EncodeMessage({.token = server_token_, .id = id, .type = type}, &header);
  header.append(rest.data(), rest.size());
  // Where it fails, so does the endpoint.
  worker_->Send(endpoint_, std::move(header), {}, [](ucs_status_t) {});
}

void ClientStream::Abandon(uint64_t request) {
  std::vector<ItemId> abandoned;
  std::erase_if(queue_, [&](const ItemId& id) {
    if (id.request == request) abandoned.push_back(id);
    return id.request == request;
  });
  for (const ItemId& id : abandoned) {
    Say(MessageType::kAbort, id);
    table_->EndUse(id.request);
  }
}

}  // namespace quarry::transport::ucx
