// What a node knows of blocks, as rows.
#ifndef QUARRY_TOOLS_QUARRYCTL_NODE_BLOCK_ROWS_H_
#define QUARRY_TOOLS_QUARRYCTL_NODE_BLOCK_ROWS_H_

#include <string>
#include <vector>

#include "quarry/v1/cache.pb.h"
#include "tools/quarryctl/report.h"

namespace quarry::ctl {

std::vector<Column> BlockColumns();
// A cell for each of BlockColumns().
std::vector<Value> BlockRow(const v1::BlockInfo& block);

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_NODE_BLOCK_ROWS_H_
