#include "client/session.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/options.h"
#include "common/clock.h"

namespace quarry {

Session::Session(SessionContext context, wire::Limits limits) : context_(std::move(context)), limits_(limits) {}

Session::~Session() = default;

absl::StatusOr<std::shared_ptr<Session>> Session::Open(const ClientOptions& options, SessionContext context,
                                                       int64_t deadline_ns, DialInterrupt* interrupt) {
  auto greeting = OpenControlStream(options.server, ChosenClientName(options), deadline_ns, interrupt);
  if (!greeting.ok()) return greeting.status();
  std::shared_ptr<Session> session(new Session(std::move(context), greeting->limits));
  if (absl::Status status = session->Connect(options, *std::move(greeting), deadline_ns, interrupt); !status.ok()) {
    return status;
  }
  return session;
}

absl::Status Session::Connect(const ClientOptions& options, Greeting greeting, int64_t deadline_ns,
                              DialInterrupt* interrupt) {
  const auto on_closed = [weak = weak_from_this()](const absl::Status& why) {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->PostSafely([why](Session* session) {
      session->Break(absl::UnavailableError(absl::StrCat("data stream: ", absl::string_view(why.message()))));
    });
  };
  auto opened = OpenChannel(options, greeting, context_.loops, on_closed, deadline_ns, interrupt);
  if (!opened.ok()) return opened.status();
  channel_ = std::move(opened->channel);
  transport_ = std::move(opened->choice);
  ControlStream::Listener* const listener = this;
  control_ = std::make_shared<ControlStream>(std::move(greeting.control), loop(), listener);
  loop()->Run([this] { control_->Start(); });
  return absl::OkStatus();
}

absl::Status Session::RegisterMemory(MemoryRange range) {
  std::lock_guard lock(memory_mutex_);
  return channel_ != nullptr ? channel_->RegisterMemory(range) : why_broken();
}

void Session::UnregisterMemory(MemoryRange range) {
  std::lock_guard lock(memory_mutex_);
  if (channel_ != nullptr) channel_->UnregisterMemory(range);
}

bool Session::broken() const {
  std::lock_guard lock(mutex_);
  return broken_;
}

absl::Status Session::why_broken() const {
  std::lock_guard lock(mutex_);
  return why_broken_;
}

absl::Status Session::Admit(const std::shared_ptr<Operation>& operation) {
  if (broken_) return why_broken_;
  if (operations_.size() >= limits_.max_requests) {
    return absl::ResourceExhaustedError(
        absl::StrCat("at most ", limits_.max_requests, " operations may be under way (limits.max_requests)"));
  }
  operations_.emplace(operation->id(), operation);
  deadlines_.emplace(operation->deadline_ns(), operation->id());
  context_.counters->operations.fetch_add(1, std::memory_order_relaxed);
  if (transport::ExposedRequest* exposed = operation->exposed(); exposed != nullptr) {
    context_.counters->exposed_requests.fetch_add(1, std::memory_order_relaxed);
    channel_->Expose(operation->id(), std::shared_ptr<transport::ExposedRequest>(operation, exposed));
  }
  return absl::OkStatus();
}

absl::Status Session::Begin(const std::shared_ptr<Operation>& operation, const std::string& message) {
  if (control_->outgoing_bytes() > kMaxOutgoingBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the server has left more than ", kMaxOutgoingBytes, " bytes unread"));
  }
  bool earlier;
  {
    // Also keeps the channel from being destroyed meanwhile: see Dispose.
    std::lock_guard lock(mutex_);
    if (absl::Status status = Admit(operation); !status.ok()) return status;
    earlier = operation->deadline_ns() < timer_due_ns_;
    if (earlier) timer_due_ns_ = operation->deadline_ns();
  }
  control_->Send(message);
  if (earlier) PostSafely([](Session* self) { self->ArmTimer(); });
  return absl::OkStatus();
}

bool Session::idle() const {
  std::lock_guard lock(mutex_);
  return operations_.empty();
}

absl::Status Session::BeginAndRead(const std::shared_ptr<ReplyOperation>& operation, const std::string& message) {
  // Replies to others would have to be handed on, which costs them more than it spares here.
  ControlStream::Turn turn = idle() ? control_->TakeTurn() : ControlStream::Turn();
  if (absl::Status status = Begin(operation, message); !status.ok() || !turn) return status;
  const auto bytes = turn.Next(operation->deadline_ns());
  if (bytes.has_value() && !EndByReply(operation.get(), *bytes)) turn.PutBack();
  return absl::OkStatus();
}

bool Session::EndByReply(ReplyOperation* operation, absl::string_view bytes) {
  const auto message = wire::DecodeServerMessage(bytes);
  if (!message.ok() || message->request != operation->id()) return false;
  if (std::holds_alternative<std::monostate>(message->body)) return false;
  // Once taken, nobody else ends it.
  if (Take(operation->id()) == nullptr) return false;
  const auto* error = std::get_if<wire::Error>(&message->body);
  const absl::Status violation = error == nullptr ? operation->TakeReply(*message) : absl::OkStatus();
  if (!violation.ok()) PostSafely([violation](Session* self) { self->Break(violation); });
  context_.counters->operations.fetch_sub(1, std::memory_order_relaxed);
  operation->Finish(error == nullptr ? violation : StatusOf(*error), /*held=*/false, EndedBy::kServer);
  return true;
}

void Session::Cancel(uint64_t id) {
  PostSafely([id](Session* self) {
    self->EndOperation(id, absl::CancelledError("cancelled by the caller"), EndedBy::kClient);
  });
}

void Session::PostSafely(std::function<void(Session*)> task) {
  loop()->Post([weak = weak_from_this(), task = std::move(task)] {
    if (const auto self = weak.lock(); self != nullptr) task(self.get());
  });
}

void Session::PostToOperation(uint64_t id) {
  PostSafely([id](Session* self) {
    if (const auto operation = self->Find(id); operation != nullptr) operation->OnPosted();
  });
}

void Session::SendAside(const wire::ClientMessage& message) {
  std::string framed;
  wire::AppendFramed(message, &framed);
  control_->Send(framed);
}

std::shared_ptr<Operation> Session::Find(uint64_t id) const {
  std::lock_guard lock(mutex_);
  const auto found = operations_.find(id);
  return found == operations_.end() ? nullptr : found->second;
}

std::shared_ptr<Operation> Session::Take(uint64_t id) {
  std::lock_guard lock(mutex_);
  auto node = operations_.extract(id);
  if (node.empty()) return nullptr;
  deadlines_.erase({node.mapped()->deadline_ns(), id});
  return std::move(node.mapped());
}

void Session::EndOperation(uint64_t id, absl::Status status, EndedBy by) {
  const std::shared_ptr<Operation> operation = Take(id);
  if (operation == nullptr) return;
  bool held = false;
  if (operation->exposed() != nullptr) {
    auto released = [weak = weak_from_this(), id] {
      const auto self = weak.lock();
      if (self != nullptr) self->PostSafely([id](Session* session) { session->ReleaseHeld(id); });
    };
    held = channel_->Withdraw(id, std::move(released)) == transport::Release::kHeld;
  }
  if (held) {
    held_.emplace(id, operation);
    context_.counters->held.fetch_add(1, std::memory_order_relaxed);
  } else {
    CountReleased(operation.get());
  }
  context_.counters->operations.fetch_sub(1, std::memory_order_relaxed);
  operation->Finish(status, held, by);
}

void Session::CountReleased(Operation* operation) {
  if (operation->exposed() == nullptr) return;
  context_.counters->exposed_requests.fetch_sub(1, std::memory_order_relaxed);
}

void Session::ReleaseHeld(uint64_t id) {
  auto node = held_.extract(id);
  if (node.empty()) return;
  context_.counters->held.fetch_sub(1, std::memory_order_relaxed);
  CountReleased(node.mapped().get());
  node.mapped()->Release();
}

void Session::OnControlMessage(absl::string_view bytes) {
  const auto message = wire::DecodeServerMessage(bytes);
  if (!message.ok()) {
    return Break(absl::UnavailableError(
        absl::StrCat("the server sent a malformed message: ", absl::string_view(message.status().message()))));
  }
  const auto* error = std::get_if<wire::Error>(&message->body);
  if (message->request == 0) {
    // About the session: an error ends it, and Draining is heard of again in refusals.
    if (error != nullptr) Break(absl::UnavailableError(StatusOf(*error).message()));
    return;
  }
  const std::shared_ptr<Operation> operation = Find(message->request);
  if (operation == nullptr) return OnStrayReply(*message);
  if (error != nullptr) return EndOperation(message->request, StatusOf(*error), EndedBy::kServer);
  // From a newer minor version, and thus nothing that this one has to know.
  if (std::holds_alternative<std::monostate>(message->body)) return;
  if (absl::Status status = operation->OnMessage(*message); !status.ok()) Break(status);
}

// The reply to what has ended meanwhile. A lease in it would pin blocks for nobody.
void Session::OnStrayReply(const wire::ServerMessage& message) {
  const auto* match = std::get_if<wire::MatchReply>(&message.body);
  if (match != nullptr && !match->lease.empty()) {
    SendAside({context_.next_request->fetch_add(1, std::memory_order_relaxed), wire::ReleaseLease{match->lease}});
  }
}

void Session::Break(const absl::Status& why) {
  std::vector<uint64_t> ids;
  {
    std::lock_guard lock(mutex_);
    if (broken_) return;
    broken_ = true;
    why_broken_ = why;
    for (const auto& [id, operation] : operations_) ids.push_back(id);
  }
  control_->Stop();
  if (timer_ != 0) loop()->CancelTimer(timer_);
  timer_ = 0;
  std::sort(ids.begin(), ids.end());
  for (const uint64_t id : ids) EndOperation(id, why, EndedBy::kServer);
  context_.on_broken();
}

void Session::Dispose(const absl::Status& why) {
  loop()->Run([this, &why] { Break(why); });
  // Broken: nobody exposes or withdraws any more. Tasks that were posted before find no
  // operation.
  {
    std::lock_guard lock(memory_mutex_);
    channel_.reset();
  }
  loop()->Run([this] {
    while (!held_.empty()) ReleaseHeld(held_.begin()->first);
  });
}

void Session::ArmTimer() {
  int64_t due_ns;
  {
    std::lock_guard lock(mutex_);
    if (broken_ || timer_due_ns_ == INT64_MAX) return;
    due_ns = timer_due_ns_;
  }
  if (timer_ != 0) loop()->CancelTimer(timer_);
  timer_ = loop()->After(std::max<int64_t>(due_ns - Clock::Real()->NowNs(), 0), [this] { OnTimer(); });
}

// The timer stays where it is when the operation that it was set for ends: with equal
// deadlines it then fires once a deadline, not once an operation.
void Session::OnTimer() {
  timer_ = 0;
  std::vector<uint64_t> expired;
  {
    std::lock_guard lock(mutex_);
    const int64_t now = Clock::Real()->NowNs();
    for (const auto& [due, id] : deadlines_) {
      if (due > now) break;
      expired.push_back(id);
    }
    const auto next = deadlines_.lower_bound({now + 1, 0});
    timer_due_ns_ = next == deadlines_.end() ? INT64_MAX : next->first;
  }
  for (const uint64_t id : expired) {
    EndOperation(id, absl::DeadlineExceededError("the operation's deadline has passed"), EndedBy::kClient);
  }
  ArmTimer();
}

}  // namespace quarry
