// What the front ends count; the block store keeps its own counters (StoreStats). Both are
// read at scrape time by server/metrics/exporter.cc. All members are thread-safe and cost
// an atomic addition.
#ifndef QUARRY_SERVER_METRICS_SERVICE_METRICS_H_
#define QUARRY_SERVER_METRICS_SERVICE_METRICS_H_

#include <array>
#include <atomic>
#include <cstdint>

#include "common/transfer_rate.h"

namespace quarry::server {

// Counts durations in buckets that double from 1 us to about 67 s.
class LatencyHistogram {
 public:
  static constexpr int kBuckets = 27;  // upper bounds 1 us * 2^i; the last is +Inf

  void Record(int64_t ns);
  struct Snapshot {
    std::array<uint64_t, kBuckets> counts{};  // per bucket, not cumulative
    uint64_t sum_ns = 0;
  };
  Snapshot snapshot() const;
  // In seconds; infinity for the last.
  static double UpperBound(int bucket);

 private:
  std::array<std::atomic<uint64_t>, kBuckets> counts_{};
  std::atomic<uint64_t> sum_ns_{0};
};

enum class Op : uint8_t { kMatch, kGet, kPut, kFetch };
inline constexpr int kOps = 4;

struct ServiceMetrics {
  std::array<LatencyHistogram, kOps> latency;  // from the message's receipt to its last answer
  std::array<std::atomic<uint64_t>, kOps> requests{};
  std::array<std::atomic<uint64_t>, kOps> errors{};  // answered by an error
  TransferRate get_rate;                             // of gets, from receipt to last answer
  std::atomic<uint64_t> read_bytes{0};               // payload handed to transports for clients
  std::atomic<uint64_t> written_bytes{0};            // payload received from clients
  std::atomic<uint64_t> delivered_items{0};          // confirmed by clients
  std::atomic<uint64_t> delivered_bytes{0};
  std::atomic<uint64_t> corrupt_items{0};  // reported by clients
  std::atomic<uint64_t> sessions{0};       // open now
  std::atomic<uint64_t> sessions_total{0};
  std::atomic<uint64_t> sessions_refused{0};  // protocol errors, versions, limits
  std::atomic<uint64_t> transfers_queued{0};  // now, in the scheduler
  std::atomic<uint64_t> bytes_in_flight{0};   // now, started and not finished
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_METRICS_SERVICE_METRICS_H_
