// What most requests begin with: a namespace, and hashes of one of its groups.
#ifndef QUARRY_SERVER_GRPC_REQUEST_TARGET_H_
#define QUARRY_SERVER_GRPC_REQUEST_TARGET_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/cache_service.h"
#include "server/grpc/convert.h"

namespace quarry::server {

inline absl::string_view TenantOr(absl::string_view tenant) { return tenant.empty() ? kDefaultTenant : tenant; }

// NotFound: no such namespace.
template <typename Request>
absl::StatusOr<const Namespace*> NamespaceOf(const CacheService& service, const Request& request) {
  return service.FindNamespace(TenantOr(request.tenant()), request.namespace_());
}

struct BlockTarget {
  HashSpan hashes() const { return {packed, ns->spec.hash_bytes}; }

  const Namespace* ns = nullptr;
  uint32_t group = 0;
  std::string packed;
};

// Of a request with tenant, namespace, group and hashes. InvalidArgument names the field.
template <typename Request>
absl::StatusOr<BlockTarget> BlocksOf(const CacheService& service, const Request& request) {
  const absl::StatusOr<const Namespace*> ns = NamespaceOf(service, request);
  if (!ns.ok()) return ns.status();
  auto packed = PackHashes(request.hashes(), "hashes", (*ns)->spec.hash_bytes, service.limits().max_items);
  if (!packed.ok()) return packed.status();
  if (packed->empty()) return absl::InvalidArgumentError("hashes: none");
  if (absl::Status status = service.CheckGroup(**ns, request.group()); !status.ok()) return status;
  return BlockTarget{*ns, request.group(), *std::move(packed)};
}

}  // namespace quarry::server

#endif  // QUARRY_SERVER_GRPC_REQUEST_TARGET_H_
