#include "tools/quarryctl/node/block_rows.h"

#include "tools/quarryctl/node/hashes.h"
#include "tools/quarryctl/node/names.h"

namespace quarry::ctl {

std::vector<Column> BlockColumns() {
  return {{"hash", "HASH"},     {"group", "GROUP"},     {"state", "STATE"},
          {"depth", "DEPTH"},   {"bytes", "BYTES"},     {"shards_there", "SHARDS"},
          {"leases", "LEASES"}, {"age_seconds", "AGE"}, {"miss", "WHY NOT"}};
}

std::vector<Value> BlockRow(const v1::BlockInfo& block) {
  const bool missed = block.miss() != v1::MISS_CAUSE_UNSPECIFIED;
  return {Value::Text(ToHex(block.hash())),
          Value::Count(block.group()),
          Value::Text(Name(block.state())),
          Value::Count(block.depth()),
          Value::Bytes(block.bytes()),
          Value::Count(block.shards_there()),
          Value::Count(block.leases()),
          block.shards_there() == 0 ? Value::None() : Value::Seconds(static_cast<double>(block.age_ms()) / 1000),
          missed ? Value::Text(Name(block.miss())) : Value::None("")};
}

}  // namespace quarry::ctl
