// quarry.v1.Admin over the cache service.
#ifndef QUARRY_SERVER_GRPC_ADMIN_API_H_
#define QUARRY_SERVER_GRPC_ADMIN_API_H_

#include <utility>

#include "quarry/v1/admin.grpc.pb.h"
#include "server/cache_service.h"
#include "server/grpc/admin_calls.h"

namespace quarry::server {

// Thread-safe.
class AdminApi final : public v1::Admin::CallbackService {
 public:
  // `service` outlives it.
  AdminApi(CacheService* service, AdminHooks hooks) : service_(service), calls_(service, std::move(hooks)) {}

  grpc::ServerUnaryReactor* GetConfig(grpc::CallbackServerContext* context, const v1::GetConfigRequest* request,
                                      v1::GetConfigResponse* response) override;
  grpc::ServerUnaryReactor* ListNamespaces(grpc::CallbackServerContext* context,
                                           const v1::ListNamespacesRequest* request,
                                           v1::ListNamespacesResponse* response) override;
  grpc::ServerUnaryReactor* SetNamespaceTtl(grpc::CallbackServerContext* context,
                                            const v1::SetNamespaceTtlRequest* request,
                                            v1::SetNamespaceTtlResponse* response) override;
  grpc::ServerUnaryReactor* FlushNamespace(grpc::CallbackServerContext* context,
                                           const v1::FlushNamespaceRequest* request,
                                           v1::FlushNamespaceResponse* response) override;
  grpc::ServerUnaryReactor* RetireNamespace(grpc::CallbackServerContext* context,
                                            const v1::RetireNamespaceRequest* request,
                                            v1::RetireNamespaceResponse* response) override;
  grpc::ServerUnaryReactor* Pin(grpc::CallbackServerContext* context, const v1::PinRequest* request,
                                v1::PinResponse* response) override;
  grpc::ServerUnaryReactor* Unpin(grpc::CallbackServerContext* context, const v1::UnpinRequest* request,
                                  v1::UnpinResponse* response) override;
  grpc::ServerUnaryReactor* Warm(grpc::CallbackServerContext* context, const v1::WarmRequest* request,
                                 v1::WarmResponse* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const v1::DrainRequest* request,
                                  v1::DrainResponse* response) override;
  grpc::ServerUnaryReactor* SetLogLevel(grpc::CallbackServerContext* context, const v1::SetLogLevelRequest* request,
                                        v1::SetLogLevelResponse* response) override;
  grpc::ServerUnaryReactor* GetHealth(grpc::CallbackServerContext* context, const v1::GetHealthRequest* request,
                                      v1::GetHealthResponse* response) override;
  grpc::ServerUnaryReactor* GetSsd(grpc::CallbackServerContext* context, const v1::GetSsdRequest* request,
                                   v1::GetSsdResponse* response) override;

 private:
  CacheService* const service_;
  AdminCalls calls_;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_GRPC_ADMIN_API_H_
