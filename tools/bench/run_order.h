// Which run of consecutive blocks is read next: in a random order that repeats, so that each is
// read again only after all others, and is not in a memory that holds a part of them.
#ifndef QUARRY_TOOLS_BENCH_RUN_ORDER_H_
#define QUARRY_TOOLS_BENCH_RUN_ORDER_H_

#include <atomic>
#include <cstdint>
#include <vector>

namespace quarry::bench {

// Thread-safe.
class RunOrder {
 public:
  // Runs 0 to `runs` - 1; at least one.
  RunOrder(uint64_t runs, uint64_t seed);
  uint64_t Next() { return order_[next_.fetch_add(1, std::memory_order_relaxed) % order_.size()]; }

 private:
  std::vector<uint64_t> order_;
  std::atomic<uint64_t> next_{0};
};

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_RUN_ORDER_H_
