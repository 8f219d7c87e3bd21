// The gRPC port: quarry.v1.Cache and Admin, the standard health service and reflection.
#ifndef QUARRY_SERVER_GRPC_GRPC_SERVER_H_
#define QUARRY_SERVER_GRPC_GRPC_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net/socket.h"
#include "server/cache_service.h"
#include "server/grpc/admin_hooks.h"

namespace grpc {
class Server;
}

namespace quarry::server {

class AdminApi;
class CacheApi;
struct StreamLimits;

struct GrpcServerOptions {
  std::vector<HostPort> listen;  // port 0 picks one
  std::string version;
  AdminHooks admin;
  int64_t stream_idle_ns = 30'000'000'000;  // see IdleStreams
};

class GrpcServer {
 public:
  // Serving when it returns; `service` outlives it. Unavailable when an address cannot be
  // had.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Create(GrpcServerOptions options, CacheService* service);
  // Calls under way are answered, or cancelled after a second.
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  // As bound, in the order of `listen`.
  const std::vector<HostPort>& addresses() const { return addresses_; }
  // What streaming calls hold now, and may.
  const StreamLimits& stream_limits() const;
  // Ends streams whose clients have stopped. Called every few tens of milliseconds.
  void Tick();
  // The health service answers NOT_SERVING from now on.
  void Drain();

 private:
  GrpcServer(GrpcServerOptions options, CacheService* service);
  absl::Status Start();

  std::vector<HostPort> addresses_;
  std::unique_ptr<CacheApi> cache_;
  std::unique_ptr<AdminApi> admin_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_GRPC_GRPC_SERVER_H_
