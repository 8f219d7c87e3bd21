// What ClientCounters reports, as it is kept.
#ifndef QUARRY_CLIENT_COUNTERS_H_
#define QUARRY_CLIENT_COUNTERS_H_

#include <atomic>
#include <cstdint>

namespace quarry {

struct AtomicCounters {
  std::atomic<uint64_t> operations{0};
  std::atomic<uint64_t> held{0};
  std::atomic<uint64_t> exposed_requests{0};
  std::atomic<uint64_t> reconnects{0};
  std::atomic<uint64_t> checksum_failures{0};
};

}  // namespace quarry

#endif  // QUARRY_CLIENT_COUNTERS_H_
