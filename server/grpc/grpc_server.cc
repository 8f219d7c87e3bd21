#include "server/grpc/grpc_server.h"

#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/grpc/admin_api.h"
#include "server/grpc/cache_api.h"

namespace quarry::server {
namespace {

constexpr int kMaxMessageBytes = 8 << 20;
constexpr size_t kMemoryQuotaBytes = 256 << 20;  // of all gRPC connections together
constexpr int kMaxStreamsPerConnection = 256;
constexpr std::chrono::seconds kShutdownGrace(1);

void LogFromGrpc(gpr_log_func_args* args) {
  switch (args->severity) {
    case GPR_LOG_SEVERITY_ERROR:
      spdlog::warn("gRPC: {}", args->message);
      return;
    case GPR_LOG_SEVERITY_INFO:
      spdlog::debug("gRPC: {}", args->message);
      return;
    case GPR_LOG_SEVERITY_DEBUG:
      spdlog::trace("gRPC: {}", args->message);
      return;
  }
}

void PrepareOnce() {
  static const bool done = [] {
    gpr_set_log_function(LogFromGrpc);
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    return true;
  }();
  (void)done;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Create(GrpcServerOptions options, CacheService* service) {
  PrepareOnce();
  std::unique_ptr<GrpcServer> server(new GrpcServer(std::move(options), service));
  if (absl::Status status = server->Start(); !status.ok()) return status;
  return server;
}

GrpcServer::GrpcServer(GrpcServerOptions options, CacheService* service)
    : addresses_(std::move(options.listen)),
      cache_(std::make_unique<CacheApi>(service, std::move(options.version), options.stream_idle_ns)),
      admin_(std::make_unique<AdminApi>(service, std::move(options.admin))) {}

absl::Status GrpcServer::Start() {
  grpc::ServerBuilder builder;
  // Otherwise a second daemon would share the port with the first, and clients meet either.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.SetResourceQuota(grpc::ResourceQuota("quarryd").Resize(kMemoryQuotaBytes));
  builder.RegisterService(cache_.get());
  builder.RegisterService(admin_.get());

  std::vector<int> ports(addresses_.size(), 0);
  for (size_t i = 0; i < addresses_.size(); ++i) {
    builder.AddListeningPort(FormatHostPort(addresses_[i]), grpc::InsecureServerCredentials(), &ports[i]);
  }
  server_ = builder.BuildAndStart();
  for (size_t i = 0; i < addresses_.size(); ++i) {
    if (ports[i] == 0) {
      return absl::UnavailableError(absl::StrCat("cannot serve gRPC on ", FormatHostPort(addresses_[i])));
    }
    addresses_[i].port = static_cast<uint16_t>(ports[i]);
  }
  if (server_ == nullptr) return absl::UnavailableError("cannot start the gRPC server");
  // The health service knows no service but "" by itself.
  server_->GetHealthCheckService()->SetServingStatus(v1::Cache::service_full_name(), true);
  server_->GetHealthCheckService()->SetServingStatus(v1::Admin::service_full_name(), true);
  return absl::OkStatus();
}

GrpcServer::~GrpcServer() {
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
}

const StreamLimits& GrpcServer::stream_limits() const { return cache_->stream_limits(); }

void GrpcServer::Tick() { cache_->EndIdleStreams(); }

void GrpcServer::Drain() { server_->GetHealthCheckService()->SetServingStatus(false); }

}  // namespace quarry::server
