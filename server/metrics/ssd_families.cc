#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/metrics/exporter.h"
#include "server/metrics/sections.h"

namespace quarry::server {
namespace {

using Disks = std::vector<SsdDiskStats>;

// One series a disk; `value(disk)`.
template <typename Value>
void AddEach(Families& out, const Disks& disks, const Labels& more, Value value) {
  for (const SsdDiskStats& disk : disks) {
    Labels labels = more;
    labels.push_back({"dir", disk.dir});
    out.Add(static_cast<double>(value(disk)), std::move(labels));
  }
}

void AddSpace(Families& out, const Disks& disks) {
  out.Gauge("quarry_ssd_size_bytes", "Bytes that a directory's extents may have.");
  AddEach(out, disks, {}, [](const SsdDiskStats& d) { return d.max_bytes; });
  out.Gauge("quarry_ssd_live_bytes", "Bytes of records on SSDs that may be asked for, headers included.");
  AddEach(out, disks, {}, [](const SsdDiskStats& d) { return d.live_bytes; });
  out.Gauge("quarry_ssd_live_records", "Records on SSDs that may be asked for: a shard of a block each.");
  AddEach(out, disks, {}, [](const SsdDiskStats& d) { return d.live_records; });
  out.Gauge("quarry_ssd_free_extents", "Extents that can be written to.");
  AddEach(out, disks, {}, [](const SsdDiskStats& d) { return d.free_extents; });
  out.Counter("quarry_ssd_reclaimed_extents_total", "Extents that were emptied to be written to again.");
  AddEach(out, disks, {}, [](const SsdDiskStats& d) { return d.reclaimed_extents; });
  out.Gauge("quarry_ssd_catalog_bytes", "Bytes of the catalogs on SSDs.");
  AddEach(out, disks, {}, [](const SsdDiskStats& d) { return d.catalog.bytes_on_disk; });
  out.Gauge("quarry_ssd_catalog_memory_bytes", "Memory of the catalogs.");
  AddEach(out, disks, {}, [](const SsdDiskStats& d) { return d.catalog.memory_bytes; });
}

void AddWrites(Families& out, const Disks& disks) {
  out.Counter("quarry_ssd_spilled_bytes_total",
              "Bytes of records written because their blocks were cold, and committed.");
  AddEach(out, disks, {}, [](const SsdDiskStats& d) { return d.log.spilled_bytes; });
  out.Counter("quarry_ssd_spilled_records_total", "Records written because their blocks were cold, and committed.");
  AddEach(out, disks, {}, [](const SsdDiskStats& d) { return d.log.spilled_records; });
  out.Counter("quarry_ssd_moved_bytes_total", "Bytes of records written again so that their extent could be emptied.");
  AddEach(out, disks, {}, [](const SsdDiskStats& d) { return d.log.moved_bytes; });
  out.Counter("quarry_ssd_commits_total", "Groups of records that were committed together.");
  AddEach(out, disks, {}, [](const SsdDiskStats& d) { return d.log.groups; });
  out.Counter("quarry_ssd_catalog_written_bytes_total",
              "Bytes that the catalogs wrote, by what for (wal, flush, compaction).");
  AddEach(out, disks, {{"for", "wal"}}, [](const SsdDiskStats& d) { return d.catalog.wal_bytes; });
  AddEach(out, disks, {{"for", "flush"}}, [](const SsdDiskStats& d) { return d.catalog.flush_bytes; });
  AddEach(out, disks, {{"for", "compaction"}}, [](const SsdDiskStats& d) { return d.catalog.compaction_bytes; });
  out.Gauge("quarry_ssd_writing", "1 while a directory takes blocks, 0 for a while after an error.");
  AddEach(out, disks, {}, [](const SsdDiskStats& d) { return d.log.writing ? 1 : 0; });
}

void AddIo(Families& out, const Disks& disks) {
  out.Gauge("quarry_ssd_io_info", "Always 1; the labels say how a directory is read and written.");
  for (const SsdDiskStats& disk : disks) {
    out.Add(1, {{"dir", disk.dir}, {"engine", disk.io_engine}, {"direct", disk.direct ? "true" : "false"}});
  }
  const auto by_op = [&](const char* name, const char* help, auto value) {
    out.Counter(name, help);
    AddEach(out, disks, {{"op", "read"}}, [&](const SsdDiskStats& d) { return value(d.io.reads); });
    AddEach(out, disks, {{"op", "write"}}, [&](const SsdDiskStats& d) { return value(d.io.writes); });
    AddEach(out, disks, {{"op", "sync"}}, [&](const SsdDiskStats& d) { return value(d.io.syncs); });
  };
  using Direction = IoQueueStats::Direction;
  by_op("quarry_ssd_io_total", "IO requests on extents that have ended.",
        [](const Direction& d) { return d.requests; });
  by_op("quarry_ssd_io_bytes_total", "Bytes that they moved.", [](const Direction& d) { return d.bytes; });
  by_op("quarry_ssd_io_errors_total", "Of them, those that failed.", [](const Direction& d) { return d.errors; });
  out.Gauge("quarry_ssd_io_in_flight", "IO requests that the kernel has.");
  AddEach(out, disks, {}, [](const SsdDiskStats& d) { return d.io.in_flight; });
  out.Gauge("quarry_ssd_io_queued", "IO requests that wait for their turn.");
  AddEach(out, disks, {}, [](const SsdDiskStats& d) { return d.io.queued; });
}

}  // namespace

void AddSsd(Families& out, const StoreStats& store, const Disks& disks) {
  if (disks.empty()) return;
  out.Gauge("quarry_ssd_blocks", "Complete blocks that are not wholly in memory.");
  out.Add(static_cast<double>(store.ssd_blocks));
  out.Counter("quarry_match_ssd_hits_total", "Of quarry_match_hits_total, those that were on an SSD.");
  out.Add(static_cast<double>(store.match_ssd_hits));
  out.Counter("quarry_ssd_loads_total", "Shards that were to be read from an SSD, by outcome.");
  out.Add(static_cast<double>(store.loads), {{"outcome", "good"}});
  out.Add(static_cast<double>(store.failed_loads), {{"outcome", "failed"}});
  out.Counter("quarry_ssd_loaded_bytes_total", "Payload that came from an SSD.");
  out.Add(static_cast<double>(store.loaded_bytes));
  out.Counter("quarry_demoted_blocks_total", "Blocks that left memory and are on an SSD.");
  out.Add(static_cast<double>(store.demoted_blocks));
  out.Counter("quarry_unspilled_blocks_total", "Blocks evicted before they could be written to an SSD.");
  out.Add(static_cast<double>(store.unspilled_blocks));
  out.Counter("quarry_over_budget_blocks_total", "Cold blocks not written to an SSD, to keep within the write budget.");
  out.Add(static_cast<double>(store.over_budget_blocks));
  out.Gauge("quarry_ready_bytes", "Slots of blocks that are on an SSD and next to be given away.");
  out.Add(static_cast<double>(store.ready_bytes));
  AddSpace(out, disks);
  AddWrites(out, disks);
  AddIo(out, disks);
}

}  // namespace quarry::server
