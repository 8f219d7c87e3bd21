#include "server/metrics/exporter.h"

#include <prometheus/text_serializer.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <sstream>

#include "quarry/block.h"
#include "server/metrics/families.h"

namespace quarry::server {
namespace {

constexpr const char* kOpNames[kOps] = {"match", "get", "put", "fetch"};
constexpr char kDram[] = "dram";
constexpr char kTcp[] = "tcp";  // the one transport there is

double Load(const std::atomic<uint64_t>& value) { return static_cast<double>(value.load(std::memory_order_relaxed)); }

std::string Text(absl::string_view text) { return std::string(text.data(), text.size()); }

void AddProcess(Families& out, const ExporterSources& sources, double start_time_seconds) {
  out.Gauge("quarry_build_info", "Always 1; the labels say what is running.");
  out.Add(1, {{"version", sources.version}, {"node", sources.node_name}});
  out.Gauge("quarry_draining", "1 while the node refuses new work.");
  out.Add(sources.draining() ? 1 : 0);
  out.Gauge("process_start_time_seconds", "When the process started, in seconds since the epoch.");
  out.Add(start_time_seconds);

  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    };
    out.Counter("process_cpu_seconds_total", "User and system CPU time of the process.");
    out.Add(seconds(usage.ru_utime) + seconds(usage.ru_stime));
  }
}

void AddRequests(Families& out, const ServiceMetrics& service) {
  out.Counter("quarry_requests_total", "Requests by operation.");
  for (int op = 0; op < kOps; ++op) out.Add(Load(service.requests[op]), {{"op", kOpNames[op]}});
  out.Counter("quarry_request_errors_total", "Requests that were answered by an error, by operation.");
  for (int op = 0; op < kOps; ++op) out.Add(Load(service.errors[op]), {{"op", kOpNames[op]}});
  out.Histogram("quarry_request_duration_seconds", "From a request's receipt to its last answer, by operation.");
  for (int op = 0; op < kOps; ++op) out.Add(service.latency[op].snapshot(), {{"op", kOpNames[op]}});
}

void AddTransfers(Families& out, const ServiceMetrics& service) {
  out.Counter("quarry_transfer_bytes_total",
              "Payload moved, by operation (get: handed to the transport, fetches included; put: received), tier and "
              "transport.");
  out.Add(Load(service.read_bytes), {{"op", "get"}, {"tier", kDram}, {"transport", kTcp}});
  out.Add(Load(service.written_bytes), {{"op", "put"}, {"tier", kDram}, {"transport", kTcp}});
  out.Counter("quarry_delivered_items_total", "Items that clients confirmed as arrived and intact.");
  out.Add(Load(service.delivered_items));
  out.Counter("quarry_delivered_bytes_total", "Payload that clients confirmed as arrived and intact.");
  out.Add(Load(service.delivered_bytes));
  out.Counter("quarry_corrupt_items_total", "Items that clients reported as failing their checksum.");
  out.Add(Load(service.corrupt_items));
  out.Gauge("quarry_transfers_queued", "Transfers waiting in the scheduler.");
  out.Add(Load(service.transfers_queued));
  out.Gauge("quarry_transfer_in_flight_bytes", "Payload of transfers that are started and not finished.");
  out.Add(Load(service.bytes_in_flight));
}

void AddSessions(Families& out, const ServiceMetrics& service) {
  out.Gauge("quarry_sessions", "Sessions that are open.");
  out.Add(Load(service.sessions));
  out.Counter("quarry_sessions_opened_total", "Sessions opened since the start.");
  out.Add(Load(service.sessions_total));
  out.Counter("quarry_sessions_refused_total", "Connections refused: protocol errors, versions, limits.");
  out.Add(Load(service.sessions_refused));
}

void AddLookups(Families& out, const StoreStats& store) {
  out.Counter("quarry_match_hashes_total", "Hashes that matches asked for.");
  out.Add(static_cast<double>(store.match_hashes));
  out.Counter("quarry_match_hits_total", "Hashes of matches that were usable.");
  out.Add(static_cast<double>(store.match_hits));
  out.Counter("quarry_misses_total", "First misses of matches, and misses of reads, by cause.");
  for (int i = 1; i < kMissCauses; ++i) {
    out.Add(static_cast<double>(store.misses[i]), {{"cause", Text(Name(static_cast<MissCause>(i)))}});
  }
}

void AddStored(Families& out, const StoreStats& store) {
  out.Counter("quarry_stored_shards_total", "Shards stored by puts.");
  out.Add(static_cast<double>(store.stored_shards), {{"tier", kDram}});
  out.Counter("quarry_stored_bytes_total", "Payload stored by puts.");
  out.Add(static_cast<double>(store.stored_bytes), {{"tier", kDram}});
  out.Counter("quarry_already_there_total", "Shards offered that were there already.");
  out.Add(static_cast<double>(store.already_there));
  out.Counter("quarry_refusals_total", "Shards of puts that were refused, by reason.");
  for (int i = 1; i < kRefusalReasons; ++i) {
    out.Add(static_cast<double>(store.refusals[i]), {{"reason", Text(Name(static_cast<RefusalReason>(i)))}});
  }
  out.Counter("quarry_evicted_blocks_total", "Blocks evicted, by reason and tier.");
  out.Add(static_cast<double>(store.evicted_blocks), {{"reason", "space"}, {"tier", kDram}});
  out.Counter("quarry_evicted_bytes_total", "Payload evicted, by reason and tier.");
  out.Add(static_cast<double>(store.evicted_bytes), {{"reason", "space"}, {"tier", kDram}});
  out.Counter("quarry_slab_moves_total", "Slabs that moved between size classes.");
  out.Add(static_cast<double>(store.slab_moves));
}

void AddOccupancy(Families& out, const StoreStats& store) {
  const auto gauge = [&out](const char* name, const char* help, uint64_t value, Labels labels = {}) {
    out.Gauge(name, help);
    out.Add(static_cast<double>(value), std::move(labels));
  };
  gauge("quarry_arena_bytes", "Memory for payload, used or not.", store.arena_bytes, {{"tier", kDram}});
  gauge("quarry_used_bytes", "Slots in use, whole slots.", store.used_bytes, {{"tier", kDram}});
  gauge("quarry_payload_bytes", "Payload in the slots in use.", store.payload_bytes, {{"tier", kDram}});
  gauge("quarry_blocks", "Blocks with at least one shard.", store.blocks);
  gauge("quarry_complete_blocks", "Blocks with all their shards.", store.complete_blocks);
  gauge("quarry_leases", "Leases in force.", store.leases);
  gauge("quarry_leased_blocks", "Blocks of leases, each counted in every one.", store.leased_blocks);
  gauge("quarry_leased_bytes", "Slots that leases pin.", store.leased_bytes, {{"tier", kDram}});
  gauge("quarry_in_flight_puts", "Shards whose put is under way.", store.in_flight_puts);
  gauge("quarry_index_bytes", "Memory of the index.", store.index_bytes);
}

void AddSizeClasses(Families& out, const StoreStats& store) {
  out.Gauge("quarry_slabs", "Slabs by the slot size they are cut into.");
  for (const StoreStats::SizeClass& c : store.size_classes) {
    out.Add(static_cast<double>(c.slabs), {{"slot_bytes", std::to_string(c.slot_bytes)}, {"tier", kDram}});
  }
  const auto by_state = [&](const char* name, const char* help, bool in_bytes) {
    out.Gauge(name, help);
    for (const StoreStats::SizeClass& c : store.size_classes) {
      const auto scale = static_cast<double>(in_bytes ? c.slot_bytes : 1);
      const std::string size = std::to_string(c.slot_bytes);
      out.Add(static_cast<double>(c.used_slots) * scale, {{"slot_bytes", size}, {"state", "used"}, {"tier", kDram}});
      out.Add(static_cast<double>(c.free_slots) * scale, {{"slot_bytes", size}, {"state", "free"}, {"tier", kDram}});
    }
  };
  by_state("quarry_slots", "Slots by size class, state and tier.", false);
  by_state("quarry_size_class_bytes", "Slot memory by size class, state and tier.", true);
}

void AddTenants(Families& out, std::vector<std::pair<std::string, uint64_t>> tenants) {
  std::sort(tenants.begin(), tenants.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  out.Gauge("quarry_tenant_bytes", "Slots in use by tenant; the smaller tenants together as (other).");
  uint64_t other = 0;
  for (size_t i = 0; i < tenants.size(); ++i) {
    if (i < kMaxTenantSeries) {
      out.Add(static_cast<double>(tenants[i].second), {{"tenant", tenants[i].first}, {"tier", kDram}});
    } else {
      other += tenants[i].second;
    }
  }
  if (tenants.size() > kMaxTenantSeries) out.Add(static_cast<double>(other), {{"tenant", "(other)"}, {"tier", kDram}});
}

double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

Exporter::Exporter(ExporterSources sources) : sources_(std::move(sources)), start_time_seconds_(NowSeconds()) {}

std::string Exporter::Text() const {
  const StoreStats store = sources_.store();
  Families families;
  AddProcess(families, sources_, start_time_seconds_);
  AddRequests(families, *sources_.service);
  AddTransfers(families, *sources_.service);
  AddSessions(families, *sources_.service);
  AddLookups(families, store);
  AddStored(families, store);
  AddOccupancy(families, store);
  AddSizeClasses(families, store);
  AddTenants(families, sources_.tenant_bytes());
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, families.all());
  return text.str();
}

}  // namespace quarry::server
