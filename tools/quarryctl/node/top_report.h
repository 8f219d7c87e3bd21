// The rates of a node as quarryctl top shows them.
#ifndef QUARRY_TOOLS_QUARRYCTL_NODE_TOP_REPORT_H_
#define QUARRY_TOOLS_QUARRYCTL_NODE_TOP_REPORT_H_

#include <string>

#include "tools/quarryctl/node/rates.h"
#include "tools/quarryctl/report.h"

namespace quarry::ctl {

// For people: related numbers on one line, so that the most important ones are at the top of
// a small screen; only operations, refusals and reasons of which there are any.
Report TopPage(const std::string& server, const NodeRates& rates, const NodeSample& now);

// For programs: every number under a key of its own.
Report TopRecord(const std::string& server, const NodeRates& rates, const NodeSample& now);

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_NODE_TOP_REPORT_H_
