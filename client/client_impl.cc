// Connections, namespaces and memory; how operations begin is in client_begin.cc.
#include "client/client_impl.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/options.h"
#include "client/signal_blocker.h"
#include "common/clock.h"

namespace quarry {
namespace {

constexpr size_t kMaxNamespaceNameBytes = 256;

uint64_t NextSerial() {
  static std::atomic<uint64_t> clients{0};
  return clients.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

ClientImpl::ClientImpl(const ClientOptions& options)
    : options_(options),
      serial_(NextSerial()),
      reconnector_(Backoff(options.backoff_min_ms, options.backoff_max_ms, SecureRandomFraction),
                   options.backoff_max_ms, [this] {
                     if (!Connect().ok()) return false;
                     counters_->reconnects.fetch_add(1, std::memory_order_relaxed);
                     return true;
                   }) {}

absl::StatusOr<std::shared_ptr<ClientImpl>> ClientImpl::Create(const ClientOptions& options) {
  if (absl::Status status = Validate(options); !status.ok()) return status;
  std::shared_ptr<ClientImpl> impl(new ClientImpl(options));
  {
    const SignalBlocker blocker;
    for (uint32_t i = 0; i < options.io_threads; ++i) {
      impl->loops_.push_back(std::make_unique<EventLoop>(absl::StrCat("quarry-io-", i)));
    }
  }
  if (absl::Status status = impl->Connect(); !status.ok()) return status;
  return impl;
}

void ClientImpl::AbandonInChild(std::shared_ptr<ClientImpl> impl) {
  if (impl == nullptr || impl->InOwner()) return;
  static auto* abandoned = new std::vector<std::shared_ptr<ClientImpl>>();
  static auto* mutex = new std::mutex();
  std::lock_guard lock(*mutex);
  abandoned->push_back(std::move(impl));
}

void ClientImpl::Shutdown() {
  std::shared_ptr<Session> session;
  std::shared_ptr<GpuTransfers> gpu_transfers;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    gpu_transfers = std::move(gpu_transfers_);
    why_disconnected_ = absl::CancelledError("the client is closed");
    session = std::move(session_);
  }
  dial_interrupt_.Interrupt();
  reconnector_.Stop();
  if (gpu_transfers != nullptr) gpu_transfers->Stop();
  if (session != nullptr) session->Dispose(absl::CancelledError("the client is closed"));
  loops_.clear();
}

absl::Status ClientImpl::CheckOwner() const {
  if (InOwner()) return absl::OkStatus();
  return absl::FailedPreconditionError("this client was made before a fork; create one in the child");
}

absl::StatusOr<std::shared_ptr<Session>> ClientImpl::CurrentSession() const {
  if (absl::Status status = CheckOwner(); !status.ok()) return status;
  std::lock_guard lock(mutex_);
  if (session_ != nullptr) return session_;
  if (stopping_) return why_disconnected_;
  return absl::UnavailableError(
      absl::StrCat("not connected to ", options_.server, ": ", absl::string_view(why_disconnected_.message())));
}

absl::Status ClientImpl::CheckNamespace(const Namespace& ns) const {
  if (absl::Status status = CheckOwner(); !status.ok()) return status;
  const auto& state = NamespaceAccess::StateOf(ns);
  if (state == nullptr) return absl::InvalidArgumentError("namespace: not opened");
  if (state->owner != serial_) return absl::InvalidArgumentError("namespace: opened by another client");
  return absl::OkStatus();
}

absl::StatusOr<ClientImpl::Target> ClientImpl::TargetOf(const Namespace& ns) const {
  if (absl::Status status = CheckNamespace(ns); !status.ok()) return status;
  Target target;
  target.ns = NamespaceAccess::StateOf(ns);
  auto session = CurrentSession();
  if (!session.ok()) return session.status();
  target.session = std::move(*session);
  auto handle = target.ns->HandleIn(target.session->number());
  if (!handle.ok()) return handle.status();
  target.handle = *handle;
  return target;
}

absl::Status ClientImpl::Connect() {
  absl::Status status = TryConnect();
  dial_interrupt_.Forget();
  if (status.ok()) return status;
  std::lock_guard lock(mutex_);
  if (!stopping_) why_disconnected_ = status;
  return status;
}

absl::Status ClientImpl::TryConnect() {
  const int64_t deadline_ns = Clock::Real()->NowNs() + options_.connect_timeout_ms * kNsPerMs;
  SessionContext context;
  {
    std::lock_guard lock(mutex_);
    context.number = ++sessions_;
  }
  for (const auto& loop : loops_) context.loops.push_back(loop.get());
  context.counters = counters_;
  context.next_request = &next_request_;
  context.on_broken = [this, number = context.number] { OnSessionBroken(number); };
  auto opened = Session::Open(options_, std::move(context), deadline_ns, &dial_interrupt_);
  absl::Status status = opened.ok() ? ReopenNamespaces(opened->get(), deadline_ns) : opened.status();
  if (status.ok()) {
    LogTransport((*opened)->transport());
    std::lock_guard memory_lock(memory_mutex_);
    const auto registered = memory_.Snapshot();
    for (const MemoryRange& range : *registered) {
      if (!gpu_ranges_.Has(range)) RegisterIn(opened->get(), range);
    }
    std::lock_guard lock(mutex_);
    if (stopping_) {
      status = why_disconnected_;
    } else if ((*opened)->broken()) {
      status = absl::UnavailableError("the connection broke at once");
    } else {
      session_ = *opened;
      return absl::OkStatus();
    }
  }
  if (opened.ok()) (*opened)->Dispose(status);
  return status;
}

void ClientImpl::Log(const std::string& line) {
  std::lock_guard lock(log_mutex_);
  if (options_.log) options_.log(line);
}

void ClientImpl::LogTransport(const TransportChoice& choice) {
  if (options_.transport != "auto" || std::exchange(transport_logged_, true)) return;
  Log(absl::StrCat("transport ", choice.name, " to ", options_.server, ", because ", choice.why));
}

std::shared_ptr<Session> ClientImpl::SessionInForce() const {
  std::lock_guard lock(mutex_);
  return session_;
}

void ClientImpl::RegisterIn(Session* session, MemoryRange range) {
  const absl::Status status = session->RegisterMemory(range);
  if (status.ok() || session->broken() || std::exchange(unreachable_logged_, true)) return;
  Log(absl::StrCat("registered memory of ", range.bytes, " bytes moves over TCP, because ",
                   absl::string_view(status.message())));
}

void ClientImpl::UnregisterMemory(MemoryRange range) {
  std::lock_guard lock(memory_mutex_);
  memory_.Remove(range);
  const bool in_gpu = gpu_ranges_.Has(range);
  gpu_ranges_.Remove(range);
  if (in_gpu) return;
  if (const auto session = SessionInForce(); session != nullptr) session->UnregisterMemory(range);
}

void ClientImpl::OnSessionBroken(uint32_t number) {
  std::shared_ptr<Session> broken;
  {
    std::lock_guard lock(mutex_);
    if (session_ == nullptr || session_->number() != number) return;
    broken = std::move(session_);
    session_ = nullptr;
    why_disconnected_ = broken->why_broken();
  }
  reconnector_.Replace(std::move(broken));
}

absl::Status ClientImpl::ReopenNamespaces(Session* session, int64_t deadline_ns) {
  // None can be added meanwhile: that takes a session in force.
  std::vector<std::shared_ptr<Namespace::State>> states;
  {
    std::lock_guard lock(mutex_);
    for (const auto& weak : namespaces_) {
      if (auto state = weak.lock(); state != nullptr) states.push_back(std::move(state));
    }
  }
  for (const auto& state : states) {
    const int64_t left_ms = std::max<int64_t>((deadline_ns - Clock::Real()->NowNs()) / kNsPerMs, 1);
    // By the name that it has: a sibling is found again under its own.
    auto again = OpenIn(session, static_cast<uint32_t>(left_ms), state->name, state->spec, {.ttl_ms = state->ttl_ms});
    if (again.ok() && (*again)->id != state->id) again = absl::FailedPreconditionError("it has another id now");
    if (session->broken() || absl::IsDeadlineExceeded(again.status())) {
      return absl::UnavailableError("the connection broke while namespaces were opened again");
    }
    if (!again.ok()) {
      state->FailBinding(again.status());
    } else {
      state->Bind(session->number(), *(*again)->HandleIn(session->number()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Namespace::State>> ClientImpl::OpenIn(Session* session, uint32_t deadline_ms,
                                                                     absl::string_view name, const ModelSpec& spec,
                                                                     const NamespaceOptions& options) {
  std::shared_ptr<Namespace::State> state;
  const auto take_reply = [&](const wire::ServerMessage& message) {
    const auto* reply = std::get_if<wire::NamespaceReply>(&message.body);
    if (reply == nullptr) return false;
    state = std::make_shared<Namespace::State>(serial_, std::string(reply->name), std::string(reply->id), spec,
                                               reply->differing_fields, reply->ttl_ms);
    state->Bind(session->number(), reply->handle);
    return true;
  };
  wire::OpenNamespace open{name, spec, options.sibling_on_mismatch, options.ttl_ms};
  if (absl::Status status = Call(session, deadline_ms, std::move(open), take_reply); !status.ok()) return status;
  return state;
}

absl::StatusOr<Namespace> ClientImpl::OpenNamespace(absl::string_view name, const ModelSpec& spec,
                                                    const NamespaceOptions& options) {
  if (absl::Status status = quarry::Validate(spec); !status.ok()) return status;
  if (absl::Status status = CheckPrefillRate(options.prefill_tokens_per_second); !status.ok()) return status;
  if (name.empty() || name.size() > kMaxNamespaceNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("name: 1 to ", kMaxNamespaceNameBytes, " bytes, got ", name.size()));
  }
  auto session = CurrentSession();
  if (!session.ok()) return session.status();
  auto state = OpenIn(session->get(), 0, name, spec, options);
  if (!state.ok()) return state.status();
  (*state)->prefill_tokens_per_second = options.prefill_tokens_per_second;

  std::lock_guard lock(mutex_);
  if (session_ != *session) return absl::UnavailableError("the connection broke while the namespace was opened");
  namespaces_.erase(
      std::remove_if(namespaces_.begin(), namespaces_.end(), [](const auto& known) { return known.expired(); }),
      namespaces_.end());
  namespaces_.push_back(*state);
  return NamespaceAccess::Make(std::move(*state));
}

ClientCounters ClientImpl::counters() const {
  ClientCounters counters;
  counters.operations = counters_->operations.load(std::memory_order_relaxed);
  counters.held = counters_->held.load(std::memory_order_relaxed);
  counters.exposed_requests = counters_->exposed_requests.load(std::memory_order_relaxed);
  counters.reconnects = counters_->reconnects.load(std::memory_order_relaxed);
  counters.checksum_failures = counters_->checksum_failures.load(std::memory_order_relaxed);
  return counters;
}

}  // namespace quarry
