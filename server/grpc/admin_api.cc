#include "server/grpc/admin_api.h"

#include "server/grpc/unary.h"

namespace quarry::server {

grpc::ServerUnaryReactor* AdminApi::GetConfig(grpc::CallbackServerContext* context, const v1::GetConfigRequest* request,
                                              v1::GetConfigResponse* response) {
  return Serve(context, &service_->metrics(), Op::kGetConfig, &calls_, *request, response);
}

grpc::ServerUnaryReactor* AdminApi::ListNamespaces(grpc::CallbackServerContext* context,
                                                   const v1::ListNamespacesRequest* request,
                                                   v1::ListNamespacesResponse* response) {
  return Serve(context, &service_->metrics(), Op::kListNamespaces, &calls_, *request, response);
}

grpc::ServerUnaryReactor* AdminApi::SetNamespaceTtl(grpc::CallbackServerContext* context,
                                                    const v1::SetNamespaceTtlRequest* request,
                                                    v1::SetNamespaceTtlResponse* response) {
  return Serve(context, &service_->metrics(), Op::kSetNamespaceTtl, &calls_, *request, response);
}

grpc::ServerUnaryReactor* AdminApi::FlushNamespace(grpc::CallbackServerContext* context,
                                                   const v1::FlushNamespaceRequest* request,
                                                   v1::FlushNamespaceResponse* response) {
  return Serve(context, &service_->metrics(), Op::kFlushNamespace, &calls_, *request, response);
}

grpc::ServerUnaryReactor* AdminApi::RetireNamespace(grpc::CallbackServerContext* context,
                                                    const v1::RetireNamespaceRequest* request,
                                                    v1::RetireNamespaceResponse* response) {
  return Serve(context, &service_->metrics(), Op::kRetireNamespace, &calls_, *request, response);
}

grpc::ServerUnaryReactor* AdminApi::Pin(grpc::CallbackServerContext* context, const v1::PinRequest* request,
                                        v1::PinResponse* response) {
  return Serve(context, &service_->metrics(), Op::kPin, &calls_, *request, response);
}

grpc::ServerUnaryReactor* AdminApi::Unpin(grpc::CallbackServerContext* context, const v1::UnpinRequest* request,
                                          v1::UnpinResponse* response) {
  return Serve(context, &service_->metrics(), Op::kUnpin, &calls_, *request, response);
}

grpc::ServerUnaryReactor* AdminApi::Warm(grpc::CallbackServerContext* context, const v1::WarmRequest* request,
                                         v1::WarmResponse* response) {
  return Serve(context, &service_->metrics(), Op::kWarm, &calls_, *request, response);
}

grpc::ServerUnaryReactor* AdminApi::Drain(grpc::CallbackServerContext* context, const v1::DrainRequest* request,
                                          v1::DrainResponse* response) {
  return Serve(context, &service_->metrics(), Op::kDrain, &calls_, *request, response);
}

grpc::ServerUnaryReactor* AdminApi::SetLogLevel(grpc::CallbackServerContext* context,
                                                const v1::SetLogLevelRequest* request,
                                                v1::SetLogLevelResponse* response) {
  return Serve(context, &service_->metrics(), Op::kSetLogLevel, &calls_, *request, response);
}

grpc::ServerUnaryReactor* AdminApi::GetHealth(grpc::CallbackServerContext* context, const v1::GetHealthRequest* request,
                                              v1::GetHealthResponse* response) {
  return Serve(context, &service_->metrics(), Op::kGetHealth, &calls_, *request, response);
}

grpc::ServerUnaryReactor* AdminApi::GetSsd(grpc::CallbackServerContext* context, const v1::GetSsdRequest* request,
                                           v1::GetSsdResponse* response) {
  return Serve(context, &service_->metrics(), Op::kGetSsd, &calls_, *request, response);
}

}  // namespace quarry::server
