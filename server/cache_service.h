// The one place in front of the block store: validation with errors that name field and
// bound, limits, tenants, metrics. Both front ends go through it.
#ifndef QUARRY_SERVER_CACHE_SERVICE_H_
#define QUARRY_SERVER_CACHE_SERVICE_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/session/messages.h"
#include "server/block_store.h"
#include "server/metrics/service_metrics.h"
#include "server/namespaces.h"

namespace quarry::server {

inline constexpr absl::string_view kDefaultTenant = "default";

// Thread-safe.
class CacheService {
 public:
  // All outlive the service.
  CacheService(NamespaceRegistry* namespaces, BlockStore* store, ServiceMetrics* metrics, wire::Limits limits);

  // InvalidArgument, FailedPrecondition, ResourceExhausted: see NamespaceRegistry::Open.
  absl::StatusOr<OpenedNamespace> OpenNamespace(absl::string_view tenant, absl::string_view name, const ModelSpec& spec,
                                                bool sibling_on_mismatch, uint64_t ttl_ms);
  // InvalidArgument, NotFound: see NamespaceRegistry::SetTtl.
  absl::Status SetTtl(absl::string_view tenant, absl::string_view name, uint64_t ttl_ms);
  // NotFound names the namespace.
  absl::StatusOr<const Namespace*> FindNamespace(absl::string_view tenant, absl::string_view name) const;

  // Validates every chain (group in range and not twice, whole hashes, at most max_items,
  // a full group's chain not beginning beyond local_tokens), then matches, and begins to load what
  // it is asked to. Counts and times it as a match.
  absl::StatusOr<MatchResult> Match(const Namespace& ns, const MatchQuery& query);

  // The parts of a get, put or touch, before anything moves. `field` prefixes messages,
  // e.g. "runs[2]"; empty: the request's own fields are meant.
  absl::Status CheckHashes(const Namespace& ns, absl::string_view field, uint32_t group,
                           absl::string_view hashes) const;
  absl::Status CheckGroup(const Namespace& ns, uint32_t group) const;
  absl::Status CheckShard(const Namespace& ns, absl::string_view field, uint32_t group, uint32_t shard) const;
  absl::Status CheckPayloadBytes(const Namespace& ns, absl::string_view field, uint32_t group, uint64_t bytes) const;

  // Empties a namespace, at once for everyone; Retire frees its name, too. How many blocks
  // were there. NotFound; ResourceExhausted: see NamespaceRegistry.
  absl::StatusOr<uint64_t> Flush(absl::string_view tenant, absl::string_view name);
  absl::StatusOr<uint64_t> Retire(absl::string_view tenant, absl::string_view name);

  void Drain();
  // Unavailable when draining.
  absl::Status CheckNotDraining() const;
  bool draining() const { return draining_.load(std::memory_order_acquire); }

  BlockStore& store() { return *store_; }
  NamespaceRegistry& namespaces() { return *namespaces_; }
  ServiceMetrics& metrics() { return *metrics_; }
  const wire::Limits& limits() const { return limits_; }

 private:
  void Prefetch(const Namespace& ns, const MatchQuery& query, const MatchResult& result);
  absl::StatusOr<uint64_t> Empty(absl::string_view tenant, absl::string_view name,
                                 absl::StatusOr<uint32_t> (NamespaceRegistry::*renumber)(const Namespace&));

  NamespaceRegistry* const namespaces_;
  BlockStore* const store_;
  ServiceMetrics* const metrics_;
  const wire::Limits limits_;
  std::atomic<bool> draining_{false};
  // On their way from the SSD because of matches. Shared with what ends them, which may outlive us.
  const std::shared_ptr<std::atomic<uint64_t>> prefetching_bytes_ = std::make_shared<std::atomic<uint64_t>>(0);
  std::mutex empty_mutex_;  // one namespace is emptied at a time
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_CACHE_SERVICE_H_
