#include "server/scheduler/transfer_scheduler.h"

#include <algorithm>
#include <array>
#include <deque>
#include <list>
#include <utility>

#include "common/clock.h"

namespace quarry::server {

using transport::Transfer;
using transport::TransferStatus;

struct TransferScheduler::Session {
  SessionId id = 0;
  uint32_t tenant = 0;
  std::shared_ptr<transport::ServerChannel> channel;
  std::array<std::deque<std::unique_ptr<Transfer>>, kPriorities> queued;
  uint64_t queued_count = 0;
  uint64_t bytes_in_flight = 0;
  bool removed = false;
  // Where it waits for its turn, if it may start something: a place in ready[priority].
  int ready_priority = -1;
  std::list<SessionPtr>::iterator ready_place;
};

struct TransferScheduler::Tenant {
  uint32_t weight = 1;
  uint32_t sessions = 0;
  uint64_t virtual_time = 0;  // bytes moved / weight, never behind the last one served
  std::array<std::list<SessionPtr>, kPriorities> ready;
  int top_ready() const {
    for (int priority = kPriorities - 1; priority >= 0; --priority) {
      if (!ready[priority].empty()) return priority;
    }
    return -1;
  }
};

namespace {

// At least one transfer moves, however large.
bool Fits(uint64_t in_flight, const Transfer& transfer, uint64_t limit) {
  return in_flight == 0 || in_flight + transfer.bytes <= limit;
}

}  // namespace

// Stands in for the transfer at the channel, to hear of its end.
class TransferScheduler::Tracked : public Transfer {
 public:
  Tracked(TransferScheduler* scheduler, SessionId session, std::unique_ptr<Transfer> inner)
      : scheduler_(scheduler), session_(session), inner_(std::move(inner)) {
    kind = inner_->kind;
    id = inner_->id;
    data = inner_->data;
    bytes = inner_->bytes;
    offset = inner_->offset;
    payload_bytes = inner_->payload_bytes;
    root = inner_->root;
    sums = inner_->sums;
    deadline_ns = inner_->deadline_ns;
  }

  bool Prepare() override {
    if (!inner_->Prepare()) return false;
    edge_sums[0] = inner_->edge_sums[0];
    edge_sums[1] = inner_->edge_sums[1];
    return true;
  }

  void Finish(TransferStatus status) override {
    scheduler_->Count(*this, status, Clock::Real()->NowNs() - begin_ns_);
    inner_->root = root;
    inner_->Finish(status);
    inner_.reset();  // the slot goes before the next transfer starts
    scheduler_->OnFinished(session_, bytes);
  }

 private:
  TransferScheduler* const scheduler_;
  const SessionId session_;
  const int64_t begin_ns_ = Clock::Real()->NowNs();
  std::unique_ptr<Transfer> inner_;
};

TransferScheduler::TransferScheduler(TransferSchedulerOptions options, ServiceMetrics* metrics)
    : options_(options), metrics_(metrics) {}

TransferScheduler::~TransferScheduler() = default;

TransferScheduler::SessionId TransferScheduler::AddSession(uint32_t tenant, uint32_t weight,
                                                           std::shared_ptr<transport::ServerChannel> channel) {
  auto session = std::make_shared<Session>();
  session->tenant = tenant;
  session->channel = std::move(channel);
  std::lock_guard lock(mutex_);
  session->id = next_session_++;
  Tenant& owner = tenants_[tenant];
  owner.weight = std::max(1u, weight);
  ++owner.sessions;
  sessions_.emplace(session->id, session);
  return session->id;
}

void TransferScheduler::RemoveSession(SessionId id) {
  SessionPtr session;
  {
    std::lock_guard lock(mutex_);
    auto it = sessions_.find(id);
    if (it == sessions_.end()) return;
    session = std::move(it->second);
    sessions_.erase(it);
    session->removed = true;
    UpdateReadyLocked(session);
    bytes_in_flight_ -= session->bytes_in_flight;
    metrics_->bytes_in_flight.fetch_sub(session->bytes_in_flight, std::memory_order_relaxed);
    metrics_->transfers_queued.fetch_sub(session->queued_count, std::memory_order_relaxed);
    auto tenant = tenants_.find(session->tenant);
    if (--tenant->second.sessions == 0) tenants_.erase(tenant);
  }
  for (auto& queue : session->queued) {
    for (auto& transfer : queue) transfer->Finish(TransferStatus::kClosed);
  }
  Pump();
}

void TransferScheduler::Submit(SessionId id, uint32_t priority, Transfers transfers) {
  Transfers refused;
  TransferStatus why = TransferStatus::kClosed;
  {
    std::lock_guard lock(mutex_);
    auto it = sessions_.find(id);
    if (it == sessions_.end()) {
      refused = std::move(transfers);
    } else if (it->second->queued_count + transfers.size() > options_.max_queued_per_session) {
      refused = std::move(transfers);
      why = TransferStatus::kCancelled;
    } else {
      Session& session = *it->second;
      session.queued_count += transfers.size();
      metrics_->transfers_queued.fetch_add(transfers.size(), std::memory_order_relaxed);
      auto& queue = session.queued[std::min(priority, kPriorities - 1)];
      for (auto& transfer : transfers) queue.push_back(std::move(transfer));
      UpdateReadyLocked(it->second);
    }
  }
  for (auto& transfer : refused) transfer->Finish(why);
  Pump();
}

void TransferScheduler::Cancel(SessionId id, uint64_t request) {
  Transfers ended;
  std::shared_ptr<transport::ServerChannel> channel;
  {
    std::lock_guard lock(mutex_);
    auto it = sessions_.find(id);
    if (it == sessions_.end()) return;
    Session& session = *it->second;
    channel = session.channel;
    if (starting_session_ == id && starting_request_ == request) starting_cancelled_ = true;
    for (auto& queue : session.queued) {
      for (auto& transfer : queue) {
        if (transfer->id.request == request) ended.push_back(std::move(transfer));
      }
      std::erase(queue, nullptr);
    }
    session.queued_count -= ended.size();
    metrics_->transfers_queued.fetch_sub(ended.size(), std::memory_order_relaxed);
    UpdateReadyLocked(it->second);
  }
  for (auto& transfer : ended) transfer->Finish(TransferStatus::kCancelled);
  channel->Cancel(request);
}

void TransferScheduler::Count(const Transfer& transfer, TransferStatus status, int64_t duration_ns) {
  metrics_->transfers_of(transfer.kind, ViaOf(transfer.carrier)).Ended(status, transfer.bytes, duration_ns);
}

void TransferScheduler::OnFinished(SessionId id, uint64_t bytes) {
  {
    std::lock_guard lock(mutex_);
    auto it = sessions_.find(id);
    if (it == sessions_.end()) return;  // accounted for when it was removed
    it->second->bytes_in_flight -= bytes;
    bytes_in_flight_ -= bytes;
    metrics_->bytes_in_flight.fetch_sub(bytes, std::memory_order_relaxed);
    UpdateReadyLocked(it->second);
  }
  Pump();
}

// Puts the session in, or takes it out of, the list of those that may start something.
void TransferScheduler::UpdateReadyLocked(const SessionPtr& session) {
  int priority = -1;
  if (!session->removed) {
    for (priority = kPriorities - 1; priority >= 0 && session->queued[priority].empty();) --priority;
    if (priority >= 0 &&
        !Fits(session->bytes_in_flight, *session->queued[priority].front(), options_.session_bytes_in_flight)) {
      priority = -1;
    }
  }
  if (priority == session->ready_priority) return;
  Tenant& tenant = tenants_.at(session->tenant);
  if (session->ready_priority >= 0) tenant.ready[session->ready_priority].erase(session->ready_place);
  session->ready_priority = priority;
  if (priority < 0) return;
  tenant.virtual_time = std::max(tenant.virtual_time, virtual_time_);
  session->ready_place = tenant.ready[priority].insert(tenant.ready[priority].end(), session);
}

std::unique_ptr<Transfer> TransferScheduler::PickLocked(SessionPtr* picked) {
  Tenant* best = nullptr;
  for (auto& [id, tenant] : tenants_) {
    if (tenant.top_ready() < 0) continue;
    if (best == nullptr || tenant.virtual_time < best->virtual_time) best = &tenant;
  }
  if (best == nullptr) return nullptr;

  auto& turn = best->ready[best->top_ready()];
  SessionPtr session = turn.front();
  auto& queue = session->queued[session->ready_priority];
  if (!Fits(bytes_in_flight_, *queue.front(), options_.node_bytes_in_flight)) return nullptr;
  turn.splice(turn.end(), turn, turn.begin());  // its next turn comes after the others'
  std::unique_ptr<Transfer> transfer = std::move(queue.front());
  queue.pop_front();

  --session->queued_count;
  session->bytes_in_flight += transfer->bytes;
  bytes_in_flight_ += transfer->bytes;
  virtual_time_ = best->virtual_time;
  best->virtual_time += (transfer->bytes + best->weight - 1) / best->weight;  // never 0
  metrics_->transfers_queued.fetch_sub(1, std::memory_order_relaxed);
  metrics_->bytes_in_flight.fetch_add(transfer->bytes, std::memory_order_relaxed);
  UpdateReadyLocked(session);
  *picked = std::move(session);
  return transfer;
}

void TransferScheduler::Pump() {
  std::unique_lock lock(mutex_);
  // A channel may finish a transfer inside Start, which leads here again; and whoever comes
  // while another thread is at it has nothing to do: that thread looks until nothing is left.
  if (pumping_) return;
  pumping_ = true;
  while (true) {
    SessionPtr session;
    std::unique_ptr<Transfer> transfer = PickLocked(&session);
    if (transfer == nullptr) break;
    const uint64_t request = transfer->id.request;
    starting_session_ = session->id;
    starting_request_ = request;
    starting_cancelled_ = false;
    lock.unlock();
    session->channel->Start(std::make_unique<Tracked>(this, session->id, std::move(transfer)));
    lock.lock();
    starting_session_ = 0;
    if (!starting_cancelled_) continue;
    // Cancel reached the channel before the transfer did.
    lock.unlock();
    session->channel->Cancel(request);
    lock.lock();
  }
  pumping_ = false;
}

}  // namespace quarry::server
