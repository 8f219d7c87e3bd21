#include <algorithm>

#include "absl/strings/str_cat.h"
#include "quarry/block.h"
#include "server/metrics/exporter.h"
#include "server/metrics/sections.h"

namespace quarry::server {
namespace {

std::string Text(absl::string_view text) { return std::string(text.data(), text.size()); }

void AddCounter(Families& out, const char* name, const char* help, uint64_t value, Labels labels = {}) {
  out.Counter(name, help);
  out.Add(static_cast<double>(value), std::move(labels));
}

void AddGauge(Families& out, const char* name, const char* help, uint64_t value, Labels labels = {}) {
  out.Gauge(name, help);
  out.Add(static_cast<double>(value), std::move(labels));
}

void AddLookups(Families& out, const StoreStats& store) {
  AddCounter(out, "quarry_match_hashes_total", "Hashes that matches asked for.", store.match_hashes);
  AddCounter(out, "quarry_match_hits_total", "Hashes of matches that were usable.", store.match_hits);
  out.Counter("quarry_misses_total", "First misses of matches, and misses of reads, by cause.");
  for (int i = 1; i < kMissCauses; ++i) {
    out.Add(static_cast<double>(store.misses[i]), {{"cause", Text(Name(static_cast<MissCause>(i)))}});
  }
  AddCounter(out, "quarry_match_uses_total",
             "Hashes of matches that count as uses of a block: those that quarry_estimated_misses_total is about.",
             store.match_uses);
  out.Counter("quarry_estimated_misses_total",
              "Of quarry_match_uses_total, how many an LRU cache of so many times the arena would have missed, "
              "estimated from a sample of blocks.");
  for (size_t i = 0; i < kEstimatedMemory.size(); ++i) {
    out.Add(store.estimated_misses[i], {{"memory", absl::StrCat(kEstimatedMemory[i], "x")}});
  }
}

void AddPuts(Families& out, const StoreStats& store) {
  AddCounter(out, "quarry_stored_shards_total", "Shards stored by puts.", store.stored_shards, {{"tier", kDramTier}});
  AddCounter(out, "quarry_stored_bytes_total", "Payload stored by puts.", store.stored_bytes, {{"tier", kDramTier}});
  AddCounter(out, "quarry_already_there_total", "Shards offered that were there already.", store.already_there);
  out.Counter("quarry_refusals_total", "Shards of puts that were refused, by reason.");
  for (int i = 1; i < kRefusalReasons; ++i) {
    out.Add(static_cast<double>(store.refusals[i]), {{"reason", Text(Name(static_cast<RefusalReason>(i)))}});
  }
  AddGauge(out, "quarry_in_flight_puts", "Shards whose put is under way.", store.in_flight_puts);
}

void AddEvictions(Families& out, const StoreStats& store) {
  const auto by_reason = [&](const char* name, const char* help, uint64_t all, uint64_t for_slab) {
    out.Counter(name, help);
    out.Add(static_cast<double>(all - std::min(all, for_slab)), {{"reason", "space"}, {"tier", kDramTier}});
    out.Add(static_cast<double>(for_slab), {{"reason", "slab_move"}, {"tier", kDramTier}});
  };
  by_reason("quarry_evicted_blocks_total",
            "Blocks evicted, by reason (space: for the next block; slab_move: for another size class) and tier.",
            store.evicted_blocks, store.slab_evicted_blocks);
  by_reason("quarry_evicted_bytes_total", "Slots of the blocks evicted, by reason and tier.", store.evicted_bytes,
            store.slab_evicted_bytes);
  AddCounter(out, "quarry_expired_blocks_total", "Blocks dropped at the end of their namespace's time to live.",
             store.expired_blocks, {{"tier", kDramTier}});
  AddCounter(out, "quarry_corrupt_blocks_total", "Blocks dropped because what is stored fails its checksum.",
             store.corrupt_blocks, {{"tier", kDramTier}});
  AddCounter(out, "quarry_slab_moves_total", "Slabs that moved between size classes.", store.slab_moves);
}

void AddOccupancy(Families& out, const StoreStats& store) {
  AddGauge(out, "quarry_arena_bytes", "Memory for payload, used or not.", store.arena_bytes, {{"tier", kDramTier}});
  AddGauge(out, "quarry_used_bytes", "Slots in use, whole slots.", store.used_bytes, {{"tier", kDramTier}});
  AddGauge(out, "quarry_payload_bytes", "Payload in the slots in use.", store.payload_bytes, {{"tier", kDramTier}});
  AddGauge(out, "quarry_blocks", "Blocks with at least one shard.", store.blocks);
  AddGauge(out, "quarry_complete_blocks", "Blocks with all their shards.", store.complete_blocks);
  AddGauge(out, "quarry_index_bytes", "Memory of the index.", store.index_bytes);
}

void AddSizeClasses(Families& out, const StoreStats& store) {
  AddGauge(out, "quarry_free_slabs", "Slabs that no size class has.", store.free_slabs, {{"tier", kDramTier}});
  out.Gauge("quarry_slabs", "Slabs by the slot size they are cut into.");
  for (const StoreStats::SizeClass& c : store.size_classes) {
    out.Add(static_cast<double>(c.slabs), {{"slot_bytes", std::to_string(c.slot_bytes)}, {"tier", kDramTier}});
  }
  const auto by_state = [&](const char* name, const char* help, bool in_bytes) {
    out.Gauge(name, help);
    for (const StoreStats::SizeClass& c : store.size_classes) {
      const auto scale = static_cast<double>(in_bytes ? c.slot_bytes : 1);
      const std::string size = std::to_string(c.slot_bytes);
      out.Add(static_cast<double>(c.used_slots) * scale,
              {{"slot_bytes", size}, {"state", "used"}, {"tier", kDramTier}});
      out.Add(static_cast<double>(c.free_slots) * scale,
              {{"slot_bytes", size}, {"state", "free"}, {"tier", kDramTier}});
    }
  };
  by_state("quarry_slots", "Slots by size class, state and tier.", false);
  by_state("quarry_size_class_bytes", "Slot memory by size class, state and tier.", true);
}

void AddLeases(Families& out, const StoreStats& store) {
  AddGauge(out, "quarry_leases", "Leases in force.", store.leases);
  AddGauge(out, "quarry_leases_limit", "Leases that may be in force.", store.max_leases);
  AddGauge(out, "quarry_leased_blocks", "Blocks of leases, each counted in every one.", store.leased_blocks);
  AddGauge(out, "quarry_leased_blocks_limit", "The bound of quarry_leased_blocks.", store.max_leased_blocks);
  AddGauge(out, "quarry_leased_bytes", "Slots that leases pin.", store.leased_bytes, {{"tier", kDramTier}});
  AddGauge(out, "quarry_leased_bytes_limit", "The bound of quarry_leased_bytes.", store.max_leased_bytes,
           {{"tier", kDramTier}});
  const LeaseTable::Counts& counts = store.lease_counts;
  out.Counter("quarry_leases_begun_total", "Leases begun, by what asked for them (put: to retain what it stores).");
  out.Add(static_cast<double>(counts.granted), {{"op", "match"}});
  out.Add(static_cast<double>(counts.retained), {{"op", "put"}});
  AddCounter(out, "quarry_leases_renewed_total", "Renewals of leases.", counts.renewed);
  out.Counter("quarry_leases_ended_total", "Leases ended, by reason.");
  out.Add(static_cast<double>(counts.released), {{"reason", "released"}});
  out.Add(static_cast<double>(counts.expired), {{"reason", "expired"}});
  out.Counter("quarry_leases_limited_total", "Matches whose lease covers less than was found, by the bound met.");
  for (int i = 1; i < kLeaseLimits; ++i) {
    out.Add(static_cast<double>(store.lease_limits[i]), {{"limit", Text(Name(static_cast<LeaseLimit>(i)))}});
  }
}

}  // namespace

void AddStore(Families& out, const StoreStats& store) {
  AddLookups(out, store);
  AddPuts(out, store);
  AddEvictions(out, store);
  AddOccupancy(out, store);
  AddSizeClasses(out, store);
  AddLeases(out, store);
}

void AddTenants(Families& out, std::vector<std::pair<std::string, uint64_t>> tenant_bytes) {
  std::sort(tenant_bytes.begin(), tenant_bytes.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  out.Gauge("quarry_tenant_bytes", "Slots in use by tenant; the smaller tenants together as (other).");
  uint64_t other = 0;
  for (size_t i = 0; i < tenant_bytes.size(); ++i) {
    if (i < kMaxTenantSeries) {
      out.Add(static_cast<double>(tenant_bytes[i].second), {{"tenant", tenant_bytes[i].first}, {"tier", kDramTier}});
    } else {
      other += tenant_bytes[i].second;
    }
  }
  if (tenant_bytes.size() > kMaxTenantSeries) {
    out.Add(static_cast<double>(other), {{"tenant", "(other)"}, {"tier", kDramTier}});
  }
}

}  // namespace quarry::server
