// What the calls of quarry.v1.Admin do: from a request to a response, without the machinery
// of a call. admin_api.h puts them on the wire.
#ifndef QUARRY_SERVER_GRPC_ADMIN_CALLS_H_
#define QUARRY_SERVER_GRPC_ADMIN_CALLS_H_

#include <utility>

#include "absl/status/status.h"
#include "common/clock.h"
#include "quarry/v1/admin.pb.h"
#include "server/cache_service.h"
#include "server/grpc/admin_hooks.h"

namespace quarry::server {

// Thread-safe. Nothing here waits. Errors as admin.proto says; a refused request changes
// nothing.
class AdminCalls {
 public:
  // `service` outlives it.
  AdminCalls(CacheService* service, AdminHooks hooks) : service_(service), hooks_(std::move(hooks)) {}

  absl::Status Handle(const v1::GetConfigRequest& request, v1::GetConfigResponse* response);
  absl::Status Handle(const v1::ListNamespacesRequest& request, v1::ListNamespacesResponse* response);
  absl::Status Handle(const v1::SetNamespaceTtlRequest& request, v1::SetNamespaceTtlResponse* response);
  absl::Status Handle(const v1::FlushNamespaceRequest& request, v1::FlushNamespaceResponse* response);
  absl::Status Handle(const v1::RetireNamespaceRequest& request, v1::RetireNamespaceResponse* response);
  absl::Status Handle(const v1::PinRequest& request, v1::PinResponse* response);
  absl::Status Handle(const v1::UnpinRequest& request, v1::UnpinResponse* response);
  absl::Status Handle(const v1::WarmRequest& request, v1::WarmResponse* response);
  absl::Status Handle(const v1::DrainRequest& request, v1::DrainResponse* response);
  absl::Status Handle(const v1::SetLogLevelRequest& request, v1::SetLogLevelResponse* response);
  absl::Status Handle(const v1::GetHealthRequest& request, v1::GetHealthResponse* response);
  absl::Status Handle(const v1::GetSsdRequest& request, v1::GetSsdResponse* response);

 private:
  CacheService* const service_;
  const AdminHooks hooks_;
  const int64_t start_ns_ = Clock::Real()->NowNs();
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_GRPC_ADMIN_CALLS_H_
