#include "server/session/session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/session/handshake.h"
#include "server/session/put_request.h"

namespace quarry::server {
namespace {

// Slots that one session may reserve: a share of a small arena, a constant of a large one.
uint64_t MaxReserved(BlockStore& store) {
  return std::min<uint64_t>(Session::kMaxReservedBytes, store.arena().size() / 8);
}

}  // namespace

Session::Session(Parts parts)
    : parts_(std::move(parts)),
      scheduler_id_(parts_.scheduler->AddSession(parts_.tenant_index, /*weight=*/1, parts_.channel)),
      max_reserved_(MaxReserved(parts_.service->store())) {}

void Session::Open(UniqueFd fd, wire::MessageBuffer buffer, uint64_t hello_request, uint32_t minor) {
  // The stream belongs to the session, so it cannot outlive it.
  stream_ = std::make_unique<SessionStream>(
      std::move(fd), loop(), std::move(buffer), [this](absl::string_view message) { OnMessage(message); },
      [this](const absl::Status& status) { parts_.on_closed(shared_from_this(), status); });
  const wire::Limits limits = service().limits();
  Send(hello_request,
       wire::HelloReply{wire::kMajorVersion, minor, parts_.id, limits, parts_.node, parts_.socket, parts_.ucx});
  stream_->Open();
}

void Session::Close() {
  if (std::exchange(closed_, true)) return;
  if (stream_ != nullptr) stream_->Close();
  const auto requests = std::exchange(requests_, {});
  for (const auto& [id, request] : requests) request->Abort();
  room_queue_.clear();
  delivered_pending_.clear();
  scheduler().RemoveSession(scheduler_id_);
  parts_.channel->Close();
}

bool Session::AdmitDataStream() {
  uint32_t admitted = data_streams_.load(std::memory_order_relaxed);
  do {
    if (admitted >= service().limits().max_data_streams) return false;
  } while (!data_streams_.compare_exchange_weak(admitted, admitted + 1, std::memory_order_relaxed));
  return true;
}

void Session::SendDraining() { Send(/*request=*/0, wire::Draining{}); }

void Session::Forget(uint64_t request) {
  auto node = requests_.extract(request);
  if (node.empty()) return;
  items_under_way_ -= node.mapped()->items();
  auto get = std::dynamic_pointer_cast<GetRequest>(node.mapped());
  if (get != nullptr && !closed_) Remember(std::move(get));
}

void Session::Remember(std::shared_ptr<GetRequest> get) {
  remembered_items_ += get->items();
  delivered_pending_.push_back(std::move(get));
  while (delivered_pending_.size() > kRememberedGets || remembered_items_ > kRememberedItems) {
    remembered_items_ -= delivered_pending_.front()->items();
    delivered_pending_.pop_front();
  }
}

void Session::OfferRoom() {
  for (size_t turns = room_queue_.size(); turns > 0 && MayReserve(1); --turns) {
    const std::shared_ptr<Request> request = std::move(room_queue_.front());
    room_queue_.pop_front();
    request->OnRoom();
  }
}

void Session::Fail(uint64_t request, const absl::Status& status) {
  if (stream_ != nullptr) stream_->Send(ErrorMessage(request, status));
}

void Session::Fail(uint64_t request, Op op, const absl::Status& status) {
  service().metrics().Failed(op);
  Fail(request, status);
}

void Session::OnMessage(absl::string_view bytes) {
  auto message = wire::DecodeClientMessage(bytes);
  if (!message.ok()) {
    // Not our protocol: what follows cannot be trusted either.
    Fail(0, message.status());
    parts_.on_closed(shared_from_this(), message.status());
    return;
  }
  const uint64_t request = message->request;
  const bool begins = !std::holds_alternative<wire::Cancel>(message->body) &&
                      !std::holds_alternative<wire::Credit>(message->body) &&
                      !std::holds_alternative<wire::Delivered>(message->body);
  if (begins && (request == 0 || requests_.contains(request))) {
    return Fail(request, absl::InvalidArgumentError(absl::StrCat("request: ", request, " is 0 or in use")));
  }
  std::visit([&](const auto& body) { Handle(request, body); }, message->body);
}

absl::StatusOr<const Namespace*> Session::NamespaceOf(uint32_t handle) const {
  if (handle == 0 || handle > namespaces_.size()) {
    return absl::NotFoundError(absl::StrCat("handle: ", handle, " is not open in this session"));
  }
  const Namespace* ns = namespaces_[handle - 1];
  if (ns->retired) return absl::NotFoundError(absl::StrCat("handle: namespace \"", ns->name, "\" was retired"));
  return ns;
}

absl::Status Session::CheckNew(uint32_t priority) const {
  if (priority >= TransferScheduler::kPriorities) {
    return absl::InvalidArgumentError(
        absl::StrCat("priority: ", priority, ", at most ", TransferScheduler::kPriorities - 1));
  }
  if (requests_.size() >= service().limits().max_requests) {
    return absl::ResourceExhaustedError(
        absl::StrCat("requests under way: ", requests_.size(), ", at most ", service().limits().max_requests));
  }
  return service().CheckNotDraining();
}

absl::Status Session::CheckItems(absl::string_view field, uint64_t items) const {
  if (items > service().limits().max_items) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": ", items, " items, at most ", service().limits().max_items));
  }
  if (items_under_way_ + items > kMaxItemsUnderWay) {
    return absl::ResourceExhaustedError(absl::StrCat(field, ": ", items, " items beside the ", items_under_way_,
                                                     " under way, at most ", kMaxItemsUnderWay, " together"));
  }
  return absl::OkStatus();
}

void Session::FailOpen(uint64_t request, const wire::OpenNamespace& message, const absl::Status& status) {
  service().metrics().Failed(Op::kOpenNamespace);
  wire::Error error{static_cast<uint32_t>(status.code()), status.message(), {}};
  if (status.code() == absl::StatusCode::kFailedPrecondition) {
    const auto taken = service().FindNamespace(parts_.tenant, message.name);
    if (taken.ok()) error.differing_fields = DifferingFields((*taken)->spec, message.spec);
  }
  Send(request, std::move(error));
}

void Session::Handle(uint64_t request, const wire::OpenNamespace& message) {
  const OpTimer timer(&service().metrics(), Op::kOpenNamespace);
  if (absl::Status status = service().CheckNotDraining(); !status.ok()) {
    return Fail(request, Op::kOpenNamespace, status);
  }
  auto opened =
      service().OpenNamespace(parts_.tenant, message.name, message.spec, message.sibling_on_mismatch, message.ttl_ms);
  if (!opened.ok()) return FailOpen(request, message, opened.status());
  auto it = std::find(namespaces_.begin(), namespaces_.end(), opened->ns);
  if (it == namespaces_.end()) {
    if (namespaces_.size() >= service().limits().max_namespaces) {
      return Fail(request, Op::kOpenNamespace,
                  absl::ResourceExhaustedError(
                      absl::StrCat("namespaces open in this session: at most ", service().limits().max_namespaces)));
    }
    it = namespaces_.insert(namespaces_.end(), opened->ns);
  }
  const auto handle = static_cast<uint32_t>(it - namespaces_.begin() + 1);
  Send(request, wire::NamespaceReply{handle, opened->ns->id, opened->ns->name, opened->differing_fields,
                                     opened->ns->ttl_ms.load(std::memory_order_relaxed)});
}

void Session::Handle(uint64_t request, const wire::Get& message) {
  service().metrics().requests[static_cast<int>(Op::kGet)].fetch_add(1, std::memory_order_relaxed);
  auto ns = NamespaceOf(message.handle);
  if (!ns.ok()) return Fail(request, Op::kGet, ns.status());
  if (absl::Status status = CheckNew(message.priority); !status.ok()) return Fail(request, Op::kGet, status);
  if (absl::Status status = CheckGet(**ns, message); !status.ok()) return Fail(request, Op::kGet, status);
  auto get = std::make_shared<GetRequest>(
      shared_from_this(), request, Op::kGet, *ns,
      GetRequest::Options{message.deadline_ms, message.priority, message.credit_bytes, message.wait_in_flight});
  requests_.emplace(request, get);
  for (const wire::GetRun& run : message.runs) {
    get->Add(run.group, run.shard, HashSpan(run.hashes, (*ns)->spec.hash_bytes), run.offset, run.bytes);
  }
  Start(get);
}

void Session::Handle(uint64_t request, const wire::Put& message) {
  service().metrics().requests[static_cast<int>(Op::kPut)].fetch_add(1, std::memory_order_relaxed);
  auto ns = NamespaceOf(message.handle);
  if (!ns.ok()) return Fail(request, Op::kPut, ns.status());
  if (absl::Status status = CheckNew(message.priority); !status.ok()) return Fail(request, Op::kPut, status);
  if (absl::Status status = CheckPut(**ns, message); !status.ok()) return Fail(request, Op::kPut, status);
  auto put = std::make_shared<PutRequest>(shared_from_this(), request, *ns, message);
  requests_.emplace(request, put);
  Start(put);
}

void Session::Handle(uint64_t request, const wire::Touch& message) {
  const OpTimer timer(&service().metrics(), Op::kTouch);
  auto ns = NamespaceOf(message.handle);
  if (!ns.ok()) return Fail(request, Op::kTouch, ns.status());
  for (size_t i = 0; i < message.chains.size(); ++i) {
    const wire::ChainPart& chain = message.chains[i];
    absl::Status status = service().CheckHashes(**ns, absl::StrCat("chains[", i, "]"), chain.group, chain.hashes);
    if (!status.ok()) return Fail(request, Op::kTouch, status);
  }
  for (const wire::ChainPart& chain : message.chains) {
    service().store().Touch(**ns, chain.group, HashSpan(chain.hashes, (*ns)->spec.hash_bytes));
  }
  Send(request, wire::Ack{});
}

void Session::Handle(uint64_t request, const wire::RenewLease& message) {
  const OpTimer timer(&service().metrics(), Op::kRenewLease);
  auto granted = service().store().RenewLease(parts_.tenant, message.lease, message.lease_ms);
  if (!granted.ok()) return Fail(request, Op::kRenewLease, granted.status());
  Send(request, wire::LeaseReply{*granted});
}

void Session::Handle(uint64_t request, const wire::ReleaseLease& message) {
  const OpTimer timer(&service().metrics(), Op::kReleaseLease);
  absl::Status status = service().store().ReleaseLease(parts_.tenant, message.lease);
  if (!status.ok()) return Fail(request, Op::kReleaseLease, status);
  Send(request, wire::LeaseReply{0});
}

void Session::Handle(uint64_t request, const wire::Cancel&) {
  auto it = requests_.find(request);
  if (it == requests_.end()) return;  // over already, which is no error
  const std::shared_ptr<Request> cancelled = it->second;
  cancelled->Abort();
}

void Session::Handle(uint64_t request, const wire::Delivered& message) {
  ServiceMetrics& metrics = service().metrics();
  metrics.delivered_items.fetch_add(message.items, std::memory_order_relaxed);
  metrics.delivered_bytes.fetch_add(message.bytes, std::memory_order_relaxed);
  metrics.corrupt_items.fetch_add(message.corrupt_items.size(), std::memory_order_relaxed);
  auto it = std::find_if(delivered_pending_.begin(), delivered_pending_.end(),
                         [&](const auto& get) { return get->id() == request; });
  if (it == delivered_pending_.end()) return;
  const std::shared_ptr<GetRequest> get = std::move(*it);
  delivered_pending_.erase(it);
  remembered_items_ -= get->items();
  // Each check reads a whole payload; what is corrupt beyond the first few is met again.
  constexpr size_t kMaxChecks = 8;
  for (size_t i = 0; i < std::min(message.corrupt_items.size(), kMaxChecks); ++i) {
    get->CheckStored(message.corrupt_items[i]);
  }
}

void Session::Handle(uint64_t request, const wire::Credit& message) {
  auto it = requests_.find(request);
  if (it == requests_.end()) return;
  if (auto get = std::dynamic_pointer_cast<GetRequest>(it->second)) get->AddCredit(message.bytes);
}

void Session::Handle(uint64_t request, const wire::GetView&) {
  Send(request, wire::View{parts_.view_digest, {parts_.node}});
}

void Session::Handle(uint64_t request, const wire::Hello&) {
  Fail(request, absl::FailedPreconditionError("hello: the session is open already"));
}

void Session::Handle(uint64_t request, const wire::DataHello&) {
  Fail(request, absl::FailedPreconditionError("data_hello: this is a control stream"));
}

void Session::Handle(uint64_t request, const std::monostate&) {
  Fail(request, absl::UnimplementedError(absl::StrCat("this node does not know that message (its protocol is ",
                                                      wire::kMajorVersion, ".", wire::kMinorVersion, ")")));
}

}  // namespace quarry::server
