// The node's counters as Prometheus text, read at scrape time.
#ifndef QUARRY_SERVER_METRICS_EXPORTER_H_
#define QUARRY_SERVER_METRICS_EXPORTER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "server/block_store.h"
#include "server/metrics/service_metrics.h"

namespace quarry::server {

// What a scrape reads. The functions are called on the scraping thread.
struct ExporterSources {
  std::function<StoreStats()> store;
  std::function<std::vector<std::pair<std::string, uint64_t>>()> tenant_bytes;
  std::function<bool()> draining;
  std::function<std::vector<SsdDiskStats>()> disks;
  const ServiceMetrics* service = nullptr;  // outlives the exporter
  std::string version;
  std::string node_name;
};

// Tenants beyond the greatest ones are summed as tenant="(other)": the number of series
// must not grow with the number of tenants.
inline constexpr size_t kMaxTenantSeries = 20;

// Thread-safe.
class Exporter {
 public:
  explicit Exporter(ExporterSources sources);
  // In the Prometheus text exposition format.
  std::string Text() const;

 private:
  const ExporterSources sources_;
  const double start_time_seconds_;  // of the process, since the epoch
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_METRICS_EXPORTER_H_
