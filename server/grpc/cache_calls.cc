#include "server/grpc/cache_calls.h"

#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "server/grpc/convert.h"
#include "server/grpc/request_target.h"

namespace quarry::server {
namespace {

constexpr uint32_t kDefaultPage = 1'000;
constexpr uint32_t kMaxPage = 10'000;

// The service counts what reaches it; this counts what does not.
absl::Status Rejected(ServiceMetrics& metrics, absl::Status status) {
  const auto op = static_cast<size_t>(Op::kMatch);
  metrics.requests[op].fetch_add(1, std::memory_order_relaxed);
  metrics.errors[op].fetch_add(1, std::memory_order_relaxed);
  return status;
}

void AddOperations(const ServiceMetrics& metrics, v1::StatsResponse* response) {
  for (size_t op = 0; op < kOps; ++op) {
    const std::vector<uint64_t> timed = metrics.latency[op].snapshot().counts;
    v1::OperationStats* out = response->add_operations();
    out->set_operation(Name(static_cast<Op>(op)));
    out->set_requests(metrics.requests[op].load(std::memory_order_relaxed));
    out->set_errors(metrics.errors[op].load(std::memory_order_relaxed));
    out->set_timed(std::accumulate(timed.begin(), timed.end(), uint64_t{0}));
    out->set_time_ns(metrics.latency[op].sum());
  }
  uint64_t served_bytes = 0;
  for (const auto& transfers : metrics.transfers) {
    served_bytes += transfers[static_cast<size_t>(transport::Transfer::Kind::kWrite)].bytes.sum();
  }
  response->set_served_bytes(served_bytes);
}

// The answer to a match that is to find nothing.
MatchResult OptedOut(absl::Span<const ChainQuery> chains, uint64_t local_tokens) {
  MatchResult result;
  result.usable_tokens = local_tokens;
  result.first_miss = MissCause::kOptedOut;
  for (const ChainQuery& chain : chains) {
    result.chains.push_back({std::string(chain.hashes.size(), static_cast<char>(BlockState::kAbsent)), {}});
  }
  return result;
}

}  // namespace

CacheCalls::CacheCalls(CacheService* service, std::string version)
    : service_(service), version_(std::move(version)), started_(std::chrono::steady_clock::now()) {}

absl::Status CacheCalls::Handle(const v1::OpenNamespaceRequest& request, v1::OpenNamespaceResponse* response) {
  if (absl::Status status = service_->CheckNotDraining(); !status.ok()) return status;
  if (!v1::OpenNamespaceRequest::OnMismatch_IsValid(request.on_mismatch())) {
    return absl::InvalidArgumentError(
        absl::StrCat("on_mismatch: ", static_cast<int>(request.on_mismatch()), " is neither FAIL nor SIBLING"));
  }
  const bool sibling = request.on_mismatch() == v1::OpenNamespaceRequest::ON_MISMATCH_SIBLING;
  const absl::StatusOr<ModelSpec> spec = FromProto(request.spec());
  if (!spec.ok()) return spec.status();
  const absl::string_view tenant = TenantOr(request.tenant());
  auto opened = service_->OpenNamespace(tenant, request.namespace_(), *spec, sibling, request.ttl_ms());
  if (!opened.ok()) {
    if (const auto taken = service_->FindNamespace(tenant, request.namespace_()); taken.ok()) {
      for (std::string& field : DifferingFields((*taken)->spec, *spec)) {
        response->add_differing_fields(std::move(field));
      }
    }
    return opened.status();
  }
  ToProto(*opened->ns, response->mutable_namespace_());
  for (std::string& field : opened->differing_fields) response->add_differing_fields(std::move(field));
  return absl::OkStatus();
}

absl::Status CacheCalls::Handle(const v1::MatchRequest& request, v1::MatchResponse* response) {
  ServiceMetrics& metrics = service_->metrics();
  if (absl::Status status = service_->CheckNotDraining(); !status.ok()) return Rejected(metrics, status);
  const absl::StatusOr<const Namespace*> ns = NamespaceOf(*service_, request);
  if (!ns.ok()) return Rejected(metrics, ns.status());
  const absl::StatusOr<PackedChains> packed = PackChains(request, (*ns)->spec.hash_bytes, service_->limits().max_items);
  if (!packed.ok()) return Rejected(metrics, packed.status());
  if (request.no_load()) {
    ToProto(OptedOut(packed->chains, request.local_tokens()), response);
    return absl::OkStatus();
  }

  MatchQuery query;
  query.local_tokens = request.local_tokens();
  query.chains = packed->chains;
  query.lease_ms = request.lease_ms();
  query.touch = request.touch();
  query.prefetch_shards = absl::MakeConstSpan(request.prefetch_shards().data(), request.prefetch_shards().size());
  const absl::StatusOr<MatchResult> result = service_->Match(**ns, query);
  if (!result.ok()) return result.status();
  ToProto(*result, response);
  return absl::OkStatus();
}

absl::Status CacheCalls::Handle(const v1::LookupRequest& request, v1::LookupResponse* response) {
  const absl::StatusOr<BlockTarget> target = BlocksOf(*service_, request);
  if (!target.ok()) return target.status();
  for (BlockInfo& block : service_->store().Lookup(*target->ns, target->group, target->hashes())) {
    v1::BlockInfo* out = response->add_blocks();
    if (block.state == BlockState::kDram || block.state == BlockState::kSsd) {
      const LoadTier tier = block.state == BlockState::kDram ? LoadTier::kDram : LoadTier::kSsd;
      const int64_t ns = service_->metrics().get_rates[static_cast<size_t>(tier)].EstimateNs(block.bytes);
      out->set_estimated_load_us(static_cast<uint64_t>((ns + kNsPerUs - 1) / kNsPerUs));
    }
    ToProto(std::move(block), out);
  }
  return absl::OkStatus();
}

absl::Status CacheCalls::Handle(const v1::TouchRequest& request, v1::TouchResponse* /*response*/) {
  const absl::StatusOr<BlockTarget> target = BlocksOf(*service_, request);
  if (!target.ok()) return target.status();
  service_->store().Touch(*target->ns, target->group, target->hashes());
  return absl::OkStatus();
}

absl::Status CacheCalls::Handle(const v1::RemoveRequest& request, v1::RemoveResponse* response) {
  const absl::StatusOr<BlockTarget> target = BlocksOf(*service_, request);
  if (!target.ok()) return target.status();
  response->set_removed(service_->store().Remove(*target->ns, target->group, target->hashes()));
  return absl::OkStatus();
}

absl::Status CacheCalls::Handle(const v1::ListRequest& request, v1::ListResponse* response) {
  const absl::StatusOr<const Namespace*> ns = NamespaceOf(*service_, request);
  if (!ns.ok()) return ns.status();
  const uint32_t page_size = request.page_size() == 0 ? kDefaultPage : request.page_size();
  if (page_size > kMaxPage) {
    return absl::InvalidArgumentError(absl::StrCat("page_size: ", page_size, ", at most ", kMaxPage));
  }
  uint64_t cursor = 0;
  if (!request.page_token().empty()) {
    if (request.page_token().size() != sizeof cursor) {
      return absl::InvalidArgumentError("page_token: not one that this node has given");
    }
    std::memcpy(&cursor, request.page_token().data(), sizeof cursor);
  }
  BlockPage page = service_->store().List(**ns, cursor, page_size);
  for (BlockInfo& block : page.blocks) ToProto(std::move(block), response->add_blocks());
  if (page.next != BlockStore::kEndOfIndex) {
    response->set_next_page_token(std::string(reinterpret_cast<const char*>(&page.next), sizeof page.next));
  }
  return absl::OkStatus();
}

absl::Status CacheCalls::Handle(const v1::StatsRequest& /*request*/, v1::StatsResponse* response) {
  const auto uptime = std::chrono::steady_clock::now() - started_;
  response->set_version(version_);
  response->set_uptime_ms(static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(uptime).count()));
  response->set_sessions(service_->metrics().sessions.load(std::memory_order_relaxed));
  response->set_draining(service_->draining());
  ToProto(service_->store().stats(), response);
  for (const Namespace* ns : service_->namespaces().List()) ToProto(*ns, response->add_namespaces());
  AddOperations(service_->metrics(), response);
  return absl::OkStatus();
}

}  // namespace quarry::server
