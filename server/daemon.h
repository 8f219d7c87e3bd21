// Builds a node out of its parts and takes it down again. life_cycle.h drives it.
#ifndef QUARRY_SERVER_DAEMON_H_
#define QUARRY_SERVER_DAEMON_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net/socket.h"
#include "server/block_store.h"
#include "server/cache_service.h"
#include "server/config.h"
#include "server/grpc/grpc_server.h"
#include "server/health.h"
#include "server/metrics/http_endpoint.h"
#include "server/metrics/service_metrics.h"
#include "server/namespaces.h"
#include "server/session/session_server.h"

namespace quarry::server {

class Daemon {
 public:
  // Serving on every address when it returns. The message of an error names the address
  // or the setting.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const ServerConfig& config);
  // Closes everything; what is still under way is cut off.
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // `quarryd ready grpc=HOST:PORT transfer=HOST:PORT metrics=HOST:PORT socket=PATH`:
  // what is advertised, else the first address of each as bound; an empty path for none.
  std::string ReadyLine() const;

  // Periodic work, every kTickMs.
  static constexpr int kTickMs = 20;
  void Tick();

  // From now on new work is refused, and health and readiness say so.
  void Drain();
  // After Drain: no request is under way, and what is worth keeping is kept.
  bool Idle();

 private:
  Daemon() = default;
  absl::Status Open(const ServerConfig& config);
  absl::Status OpenStore(const ServerConfig& config);
  absl::Status OpenSsd(const ServerConfig& config);
  absl::Status OpenSessions(const ServerConfig& config);
  absl::Status OpenGrpc(const ServerConfig& config);
  absl::Status OpenMetrics(const ServerConfig& config);
  void DrainFromAfar();
  void UpdateHealth(int64_t now_ns);
  std::string WhyNotReady() const;  // empty: ready

  std::string node_name_;
  std::string socket_path_;
  std::string advertise_grpc_;
  std::string advertise_transfer_;
  std::string advertise_metrics_;

  MemoryPlan memory_;
  std::atomic<bool> drain_wanted_{false};
  // False while the catalogs of the SSDs are read: /livez, /readyz and /metrics answer meanwhile,
  // and nothing else; of the store they do not ask.
  std::atomic<bool> recovered_{false};
  std::atomic<bool> ready_{false};
  Health health_;
  int64_t health_updated_ns_ = 0;
  uint32_t max_sessions_ = 0;

  // In the order in which they depend on each other; destroyed from the last.
  ServiceMetrics metrics_;
  NamespaceRegistry namespaces_;
  std::unique_ptr<BlockStore> store_;
  std::unique_ptr<CacheService> service_;
  std::unique_ptr<SessionServer> sessions_;
  std::unique_ptr<GrpcServer> grpc_;
  std::unique_ptr<HttpEndpoint> http_;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_DAEMON_H_
