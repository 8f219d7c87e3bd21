// Payloads from a node, checked.
#ifndef QUARRY_TOOLS_QUARRYCTL_NODE_GET_SHARDS_H_
#define QUARRY_TOOLS_QUARRYCTL_NODE_GET_SHARDS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "tools/quarryctl/node/connection.h"

namespace quarry::ctl {

struct GotShard {
  uint32_t item = 0;  // index in the request's hashes
  v1::MissCause miss = v1::MISS_CAUSE_UNSPECIFIED;
  std::string payload;  // whole, and its checksums hold; empty when it is a miss
};

// Calls `take` for each hash of the request, which is for whole payloads, in their order;
// holds one at a time. The deadline is that of --timeout, for all of them. DataLoss: what
// came is not what the node has stored. An error of `take` ends the call.
absl::Status GetShards(Connection* connection, const v1::GetRequest& request,
                       const std::function<absl::Status(GotShard*)>& take);

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_NODE_GET_SHARDS_H_
