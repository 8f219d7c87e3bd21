#include "server/grpc/ssd_convert.h"

namespace quarry::server {
namespace {

void SetIo(const IoQueueStats::Direction& io, v1::SsdIo* out) {
  out->set_requests(io.requests);
  out->set_bytes(io.bytes);
  out->set_errors(io.errors);
}

}  // namespace

void ToProto(const SsdDiskStats& stats, v1::SsdDisk* out) {
  out->set_dir(stats.dir);
  out->set_io_engine(stats.io_engine);
  out->set_direct(stats.direct);
  out->set_writing(stats.log.writing);
  out->set_last_error(stats.log.last_error);
  out->set_size_bytes(stats.max_bytes);
  out->set_extent_bytes(stats.extent_bytes);
  out->set_extent_count(stats.extents);
  out->set_free_extents(stats.free_extents);
  out->set_live_bytes(stats.live_bytes);
  out->set_live_records(stats.live_records);
  out->set_spilled_bytes(stats.log.spilled_bytes);
  out->set_spilled_records(stats.log.spilled_records);
  out->set_moved_bytes(stats.log.moved_bytes);
  out->set_moved_records(stats.log.moved_records);
  out->set_catalog_written_bytes(stats.catalog.wal_bytes + stats.catalog.flush_bytes + stats.catalog.compaction_bytes);
  out->set_reclaimed_extents(stats.reclaimed_extents);
  out->set_corrupt_records(stats.reader.corrupt);
  out->set_recovered_records(stats.recovered_records);
  out->set_dropped_records(stats.dropped_records);
  out->set_catalog_bytes(stats.catalog.bytes_on_disk);
  SetIo(stats.io.reads, out->mutable_reads());
  SetIo(stats.io.writes, out->mutable_writes());
  out->set_io_in_flight(stats.io.in_flight);
  out->set_io_queued(stats.io.queued);
}

void ToProto(const SsdExtentInfo& extent, v1::SsdExtent* out) {
  out->set_number(extent.number);
  out->set_state(static_cast<v1::SsdExtent::State>(extent.state));
  out->set_inlined(extent.inlined);
  out->set_bad(extent.bad);
  out->set_generation(extent.generation);
  out->set_bytes(extent.bytes);
  out->set_written_bytes(extent.written_bytes);
  out->set_live_bytes(extent.live_bytes);
  out->set_live_records(extent.live_records);
}

}  // namespace quarry::server
