#include "tools/bench/bench_spec.h"

#include "tools/bench/block_content.h"

namespace quarry::bench {

ModelSpec BenchSpec(const std::string& model, uint32_t tokens_per_block, uint64_t block_bytes) {
  return {
      .engine = "quarry-bench",
      .layout = "opaque",
      .model = model,
      .weights_revision = "1",
      .kv_dtype = "opaque",
      .hash_scheme = "quarry-bench",
      .hash_bytes = kHashBytes,
      .layers = 1,
      .groups = {{.kind = GroupKind::kFull, .tokens_per_block = tokens_per_block, .shard_bytes = block_bytes}},
  };
}

}  // namespace quarry::bench
