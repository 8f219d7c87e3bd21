// The session front end: listens, shakes hands, and keeps the sessions.
#ifndef QUARRY_SERVER_SESSION_SESSION_SERVER_H_
#define QUARRY_SERVER_SESSION_SESSION_SERVER_H_

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "common/net/event_loop.h"
#include "common/net/socket.h"
#include "common/transport/registry.h"
#include "server/cache_service.h"
#include "server/scheduler/transfer_scheduler.h"
#include "server/session/handshake.h"
#include "server/session/loop_heartbeat.h"
#include "server/session/session.h"

namespace quarry::server {

struct SessionServerOptions {
  std::vector<std::string> listen;  // "host:port" each; port 0 picks one
  std::string unix_socket_path;     // empty: none
  uint32_t control_threads = 1;
  int64_t most_spin_ns = 0;  // EventLoop's, of the control threads
  uint32_t data_threads = 2;
  uint32_t max_sessions = 4096;
  std::string node_name;
  TransferSchedulerOptions scheduler;
  std::optional<transport::UcxOptions> ucx;  // none: no client is offered UCX
};

// What can go wrong with the front end itself.
struct SessionHealth {
  bool accepting = true;        // false: out of file descriptors or memory
  int64_t control_late_ns = 0;  // how long a loop has owed an answer, at most
  int64_t data_late_ns = 0;
};

// Thread-safe. Control loops run handshakes and sessions; data loops move payload.
class SessionServer {
 public:
  // Listening when it returns. `service` and `metrics` outlive it.
  static absl::StatusOr<std::unique_ptr<SessionServer>> Create(SessionServerOptions options, CacheService* service,
                                                               ServiceMetrics* metrics);
  // Closes every session; nothing of a transfer is left when it returns.
  ~SessionServer();

  std::vector<HostPort> addresses() const { return addresses_; }
  // Asks all loops for an answer, and says how long those of before have been outstanding.
  // One thread at a time.
  SessionHealth CheckHealth();
  // Refuses new work and tells the clients.
  void Drain();
  // Whether no request is under way.
  bool Idle();

 private:
  class Listener;
  using SessionPtr = std::shared_ptr<Session>;

  SessionServer(SessionServerOptions options, CacheService* service, ServiceMetrics* metrics);
  absl::Status Listen();
  void OnAccepted(UniqueFd fd);
  // On the control loop of the connection.
  void OnHandshake(EventLoop* loop, Handshake* handshake, Handshake::Result result);
  void OpenSession(EventLoop* loop, Handshake::Result result);
  wire::UcxOffer OfferTo(bool within_host) const;
  void JoinDataStream(Handshake::Result result);
  void OnSessionClosed(const SessionPtr& session, const absl::Status& status);
  std::vector<SessionPtr> sessions();

  const SessionServerOptions options_;
  CacheService* const service_;
  ServiceMetrics* const metrics_;
  TransferScheduler scheduler_;
  std::vector<HostPort> addresses_;
  std::atomic<bool> accepting_{true};
  std::shared_ptr<transport::UcxHost> ucx_;                         // may be nullptr
  std::vector<std::unique_ptr<LoopHeartbeat>> control_heartbeats_;  // of control_loops_, which go first
  std::vector<std::unique_ptr<LoopHeartbeat>> data_heartbeats_;
  std::vector<std::unique_ptr<EventLoop>> control_loops_;
  std::vector<std::unique_ptr<EventLoop>> data_loops_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::atomic<uint32_t> next_control_{0};
  std::atomic<uint32_t> next_data_{0};
  std::atomic<uint32_t> next_shared_{0};

  std::mutex mutex_;
  std::unordered_map<std::string, SessionPtr> sessions_;                   // guarded by mutex_; by secret
  std::unordered_map<Handshake*, std::unique_ptr<Handshake>> handshakes_;  // guarded by mutex_
  bool closing_ = false;                                                   // guarded by mutex_
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SESSION_SESSION_SERVER_H_
