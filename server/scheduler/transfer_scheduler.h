// Decides which transfer moves next. Transports only carry out what it starts.
//
// Policy: among tenants that have queued transfers, the one that has moved least relative
// to its weight (start-time fair queueing over bytes); within a tenant higher priority
// first, then sessions in turn, then order of submission. A session has at most
// `session_bytes_in_flight` started and unfinished (always at least one transfer), the node
// at most `node_bytes_in_flight`.
#ifndef QUARRY_SERVER_SCHEDULER_TRANSFER_SCHEDULER_H_
#define QUARRY_SERVER_SCHEDULER_TRANSFER_SCHEDULER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "common/transport/transport.h"
#include "server/metrics/service_metrics.h"

namespace quarry::server {

struct TransferSchedulerOptions {
  uint64_t session_bytes_in_flight = 8 << 20;
  // More than all sessions together may have: a bound that clients who do not read can use
  // up would stop the others, and what TCP has in flight holds slots but no memory of its own.
  uint64_t node_bytes_in_flight = 1ull << 40;
  uint32_t max_queued_per_session = 262'144;  // transfers; more are refused
};

// Thread-safe. Transfers are started, and finished, without the scheduler's lock held.
class TransferScheduler {
 public:
  using SessionId = uint64_t;
  static constexpr uint32_t kPriorities = 8;

  TransferScheduler(TransferSchedulerOptions options, ServiceMetrics* metrics);
  ~TransferScheduler();

  // `channel` outlives the session's registration. Weight at least 1.
  SessionId AddSession(uint32_t tenant, uint32_t weight, std::shared_ptr<transport::ServerChannel> channel);
  // Finishes what is queued with kClosed; what is started ends by the channel.
  void RemoveSession(SessionId session);

  // Every transfer given is finished exactly once, here (kClosed: no such session;
  // kCancelled: the queue is full) or later.
  void Submit(SessionId session, uint32_t priority, std::vector<std::unique_ptr<transport::Transfer>> transfers);
  // Drops what is queued of the request (finished with kCancelled) and cancels what is
  // started.
  void Cancel(SessionId session, uint64_t request);

 private:
  class Tracked;
  struct Tenant;
  struct Session;
  using SessionPtr = std::shared_ptr<Session>;
  using Transfers = std::vector<std::unique_ptr<transport::Transfer>>;

  // Starts what may start. Called without the lock.
  void Pump();
  void Count(const transport::Transfer& transfer, transport::TransferStatus status, int64_t duration_ns);
  void OnFinished(SessionId session, uint64_t bytes);
  // Both with the lock held.
  std::unique_ptr<transport::Transfer> PickLocked(SessionPtr* session);
  void UpdateReadyLocked(const SessionPtr& session);

  const TransferSchedulerOptions options_;
  ServiceMetrics* const metrics_;
  std::mutex mutex_;
  // The rest is guarded by mutex_.
  SessionId next_session_ = 1;
  uint64_t bytes_in_flight_ = 0;
  uint64_t virtual_time_ = 0;  // of the tenant that was served last, at its start
  bool pumping_ = false;       // one thread starts transfers at a time
  // What it is starting; 0: nothing.
  SessionId starting_session_ = 0;
  uint64_t starting_request_ = 0;
  bool starting_cancelled_ = false;
  std::unordered_map<SessionId, SessionPtr> sessions_;
  std::map<uint32_t, Tenant> tenants_;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SCHEDULER_TRANSFER_SCHEDULER_H_
