// What a node did between two samples of its counters. Pure arithmetic.
#ifndef QUARRY_TOOLS_QUARRYCTL_NODE_RATES_H_
#define QUARRY_TOOLS_QUARRYCTL_NODE_RATES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quarry/v1/admin.pb.h"
#include "quarry/v1/cache.pb.h"

namespace quarry::ctl {

struct NodeSample {
  v1::StatsResponse stats;
  v1::ListNamespacesResponse usage;
};

struct OperationRates {
  std::string operation;
  double requests_per_second = 0;
  double errors_per_second = 0;
  std::optional<double> mean_seconds;  // of those answered meanwhile; none was
};

struct RefusalRate {
  v1::RefusalReason reason = v1::REFUSAL_REASON_UNSPECIFIED;
  double per_second = 0;
};

struct NamespaceRates {
  std::string tenant;
  std::string name;
  uint64_t match_hashes = 0;  // asked for meanwhile
  uint64_t match_hits = 0;    // of these, usable
  double hashes_per_second = 0;
  double saved_tokens_per_second = 0;
  uint64_t blocks = 0;         // now
  uint64_t payload_bytes = 0;  // now
};

struct NodeRates {
  double seconds = 0;      // between the samples, by the node's clock
  bool restarted = false;  // meanwhile; then since it started
  double matches_per_second = 0;
  uint64_t match_hashes = 0;  // as of a namespace
  uint64_t match_hits = 0;
  double hashes_per_second = 0;
  double saved_tokens_per_second = 0;
  double get_bytes_per_second = 0;
  double put_bytes_per_second = 0;
  double evicted_blocks_per_second = 0;
  std::vector<RefusalRate> refusals;  // every reason, as the node lists them
  std::vector<OperationRates> operations;
  std::vector<NamespaceRates> namespaces;  // the busiest first: by hashes, then by payload
};

// Counters begin anew when the node, or a namespace, does: one that is less than it was
// counts from 0, and all of them do when the node's uptime is less. So no rate is negative.
NodeRates RatesBetween(const NodeSample& before, const NodeSample& after);

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_NODE_RATES_H_
