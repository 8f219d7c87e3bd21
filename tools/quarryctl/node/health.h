// The health of a node's parts, as several commands show it.
#ifndef QUARRY_TOOLS_QUARRYCTL_NODE_HEALTH_H_
#define QUARRY_TOOLS_QUARRYCTL_NODE_HEALTH_H_

#include "quarry/v1/admin.pb.h"
#include "tools/quarryctl/report.h"

namespace quarry::ctl {

Table PartsTable(const v1::GetHealthResponse& health);
// Serves, and every part is healthy.
bool IsHealthy(const v1::GetHealthResponse& health);

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_NODE_HEALTH_H_
