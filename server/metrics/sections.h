// The parts of a scrape, one file each. Private to server/metrics.
#ifndef QUARRY_SERVER_METRICS_SECTIONS_H_
#define QUARRY_SERVER_METRICS_SECTIONS_H_

#include <string>
#include <utility>
#include <vector>

#include "server/block_store.h"
#include "server/metrics/families.h"
#include "server/metrics/service_metrics.h"
#include "server/ssd/ssd_disk.h"

namespace quarry::server {

inline constexpr char kDramTier[] = "dram";

// process_families.cc: what Prometheus' own clients call the same in every program.
void AddProcess(Families& out, double start_time_seconds);
// service_families.cc: requests, transfers, sessions.
void AddService(Families& out, const ServiceMetrics& service);
// store_families.cc: lookups, puts, evictions, memory, leases.
void AddStore(Families& out, const StoreStats& store);
// ssd_families.cc: what lies on SSDs, and how it came there. Nothing where there are none.
void AddSsd(Families& out, const StoreStats& store, const std::vector<SsdDiskStats>& disks);
void AddTenants(Families& out, std::vector<std::pair<std::string, uint64_t>> tenant_bytes);

}  // namespace quarry::server

#endif  // QUARRY_SERVER_METRICS_SECTIONS_H_
