// The namespaces that the benchmark opens.
#ifndef QUARRY_TOOLS_BENCH_BENCH_SPEC_H_
#define QUARRY_TOOLS_BENCH_BENCH_SPEC_H_

#include <cstdint>
#include <string>

#include "quarry/model_spec.h"

namespace quarry::bench {

// One full-attention group with one shard; hashes as block_content.h makes them.
ModelSpec BenchSpec(const std::string& model, uint32_t tokens_per_block, uint64_t block_bytes);

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_BENCH_SPEC_H_
