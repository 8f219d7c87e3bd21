#include "tools/bench/run_order.h"

#include <utility>

#include "tools/bench/block_content.h"

namespace quarry::bench {

RunOrder::RunOrder(uint64_t runs, uint64_t seed) : order_(runs) {
  for (uint64_t i = 0; i < runs; ++i) order_[i] = i;
  for (uint64_t i = runs; i > 1; --i) {
    seed = Mix(seed);
    std::swap(order_[i - 1], order_[seed % i]);
  }
}

}  // namespace quarry::bench
