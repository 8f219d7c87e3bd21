#include "server/grpc/cache_api.h"

#include <utility>

#include "server/grpc/convert.h"

namespace quarry::server {
namespace {

// The service counts what reaches it; this counts what does not.
absl::Status Rejected(ServiceMetrics& metrics, absl::Status status) {
  const auto op = static_cast<size_t>(Op::kMatch);
  metrics.requests[op].fetch_add(1, std::memory_order_relaxed);
  metrics.errors[op].fetch_add(1, std::memory_order_relaxed);
  return status;
}

}  // namespace

CacheApi::CacheApi(CacheService* service, std::string version)
    : service_(service), version_(std::move(version)), started_(std::chrono::steady_clock::now()) {}

grpc::ServerUnaryReactor* CacheApi::Match(grpc::CallbackServerContext* context, const v1::MatchRequest* request,
                                          v1::MatchResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(DoMatch(*request, response)));
  return reactor;
}

absl::Status CacheApi::DoMatch(const v1::MatchRequest& request, v1::MatchResponse* response) {
  ServiceMetrics& metrics = service_->metrics();
  if (service_->draining()) return Rejected(metrics, absl::UnavailableError("the node is draining"));
  const absl::string_view tenant = request.tenant().empty() ? kDefaultTenant : absl::string_view(request.tenant());
  const absl::StatusOr<const Namespace*> ns = service_->FindNamespace(tenant, request.namespace_());
  if (!ns.ok()) return Rejected(metrics, ns.status());
  const absl::StatusOr<PackedChains> packed = PackChains(request, (*ns)->spec.hash_bytes, service_->limits().max_items);
  if (!packed.ok()) return Rejected(metrics, packed.status());

  MatchQuery query;
  query.local_tokens = request.local_tokens();
  query.chains = packed->chains;
  query.lease_ms = request.lease_ms();
  query.touch = request.touch();
  const absl::StatusOr<MatchResult> result = service_->Match(**ns, query);
  if (!result.ok()) return result.status();
  ToProto(*result, response);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* CacheApi::Stats(grpc::CallbackServerContext* context, const v1::StatsRequest* /*request*/,
                                          v1::StatsResponse* response) {
  const auto uptime = std::chrono::steady_clock::now() - started_;
  response->set_version(version_);
  response->set_uptime_ms(static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(uptime).count()));
  response->set_sessions(service_->metrics().sessions.load(std::memory_order_relaxed));
  response->set_draining(service_->draining());
  ToProto(service_->store().stats(), response);
  for (const Namespace* ns : service_->namespaces().List()) ToProto(*ns, response->add_namespaces());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace quarry::server
