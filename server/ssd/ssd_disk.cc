#include "server/ssd/ssd_disk.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/ssd/record_header.h"
#include "server/ssd/whole_records.h"

namespace quarry::server {
namespace {

// Enough of them that emptying one costs little at a time, large enough that the end of each,
// which no record fills, does not matter.
constexpr uint64_t kExtents = 64;
constexpr uint64_t kMaxExtentBytes = 1 << 30;
constexpr uint64_t kCheckAtOnce = 8 << 20;

uint64_t ExtentBytes(const SsdDiskOptions& options) {
  if (options.extent_bytes != 0) return InWholePages(options.extent_bytes);
  return InWholePages(std::clamp(options.max_bytes / kExtents, SsdDisk::kMinExtentBytes, kMaxExtentBytes));
}

absl::Status Named(const std::string& dir, const absl::Status& status) {
  return {status.code(), absl::StrCat("--ssd-dir ", dir, ": ", status.message())};
}

RecordPlace PlaceOf(uint32_t disk, const CatalogRecord& record) {
  RecordPlace place;
  place.disk = disk;
  place.extent = record.extent;
  place.page = record.page;
  place.inlined = record.inlined ? 1 : 0;
  return place;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SsdDisk>> SsdDisk::Open(const SsdDiskOptions& options, RecordTable* records,
                                                       SsdOwner* owner, Clock* clock) {
  if (options.max_bytes < kMinExtents * std::max(kMinExtentBytes, options.extent_bytes)) {
    return absl::InvalidArgumentError(absl::StrCat("--ssd-size: ", options.max_bytes, " is less than ",
                                                   kMinExtents * std::max(kMinExtentBytes, options.extent_bytes), " (",
                                                   kMinExtents, " extents)"));
  }
  absl::StatusOr<std::unique_ptr<ExtentFiles>> files = OpenExtentFiles(options.dir + "/extents");
  if (!files.ok()) return Named(options.dir, files.status());
  if (!(*files)->direct()) spdlog::warn("{}: no direct IO here: pages are cached twice", options.dir);
  absl::StatusOr<IoEngineChoice> io = CreateIoEngine(options.io_engine, options.io_depth);
  if (!io.ok()) return Named(options.dir, io.status());
  spdlog::info("{}: IO by {}{}", options.dir, std::string(io->engine->name()),
               io->reason.empty() ? "" : absl::StrCat(" (", io->reason, ")"));
  CatalogOptions catalog_options;
  catalog_options.wipe_newer = options.wipe_newer;
  catalog_options.memory_bytes = options.catalog_memory_bytes;
  catalog_options.env = options.env;
  absl::StatusOr<std::unique_ptr<Catalog>> catalog = Catalog::Open(options.dir + "/catalog", catalog_options);
  if (!catalog.ok()) return Named(options.dir, catalog.status());
  if (options.wrap_files) *files = options.wrap_files(std::move(*files));
  if (options.wrap_io) io->engine = options.wrap_io(std::move(io->engine));
  return std::unique_ptr<SsdDisk>(
      new SsdDisk(options, records, owner, clock, *std::move(catalog), *std::move(files), std::move(io->engine)));
}

SsdDisk::SsdDisk(const SsdDiskOptions& options, RecordTable* records, SsdOwner* owner, Clock* clock,
                 std::unique_ptr<Catalog> catalog, std::unique_ptr<ExtentFiles> files, std::unique_ptr<IoEngine> engine)
    : options_(options),
      owner_(owner),
      clock_(clock),
      catalog_(std::move(catalog)),
      extents_(std::move(files), options.max_bytes, ExtentBytes(options)),
      io_(std::make_unique<IoQueue>(std::move(engine))),
      reader_(std::make_unique<RecordReader>(&extents_, catalog_.get(), io_.get())),
      log_(std::make_unique<RecordLog>(
          RecordLogOptions{options.number, options.dir, options.group_bytes, options.inline_bytes}, records, &extents_,
          catalog_.get(), io_.get(), owner, clock)) {}

SsdDisk::~SsdDisk() {
  reclaimer_.reset();
  log_.reset();
  reader_.reset();
}

// An extent that the catalog knows and whose file is there, or which has none. Files that it
// does not know hold nothing that was ever committed.
absl::Status SsdDisk::RestoreExtents() {
  absl::StatusOr<std::vector<ExtentFiles::Found>> found = extents_.files().List();
  if (!found.ok()) return found.status();
  std::map<uint32_t, uint64_t> files;
  for (const ExtentFiles::Found& file : *found) files[file.number] = file.bytes;
  std::vector<CatalogExtent> known;
  uint64_t unreadable = 0;
  absl::Status status = catalog_->ForEachExtent([&](const CatalogExtent& e) { known.push_back(e); }, &unreadable);
  if (!status.ok()) return status;
  // With less room than before, the newest stay.
  std::sort(known.begin(), known.end(),
            [](const CatalogExtent& a, const CatalogExtent& b) { return a.generation > b.generation; });
  uint64_t bytes = 0;
  CatalogBatch forget;
  for (const CatalogExtent& extent : known) {
    const auto file = files.find(extent.number);
    bytes += file == files.end() ? extents_.extent_bytes() : file->second;
    if (bytes <= options_.max_bytes) {
      const auto restored = extents_.Restore(extent.number, extent.generation, file == files.end() ? 0 : file->second);
      if (restored.ok()) continue;
      spdlog::warn("{}: extent {} is given up: {}", options_.dir, extent.number, restored.status().ToString());
    }
    forget.Empty(extent.number);
  }
  status = catalog_->Commit(&forget, true);
  return status.ok() ? extents_.RemoveStrays() : status;
}

absl::Status SsdDisk::Recover(const Know& know, const Restore& restore) {
  absl::Status status = RestoreExtents();
  uint64_t unreadable = 0;
  if (status.ok()) {
    CatalogBatch forget;
    status = catalog_->ForEachNamespace(
        [&](const CatalogNamespace& ns) {
          const std::optional<RecordLog::Contents> contents = know(ns);
          if (contents) {
            log_->Know(ns.number, contents->ns, contents->index);
          } else {
            forget.RemoveNamespace(ns.number);
          }
        },
        &unreadable);
    if (status.ok()) status = catalog_->Commit(&forget, true);
  }
  if (status.ok()) {
    const std::set<PageOfExtent> bad = FindBad();
    std::vector<RecordPlace> not_believed;
    status = catalog_->ForEachRecord(
        [&](const CatalogRecord& record) {
          const bool is_bad = !bad.empty() && bad.contains({record.extent, record.page});
          if (is_bad || !Believe(record, restore)) not_believed.push_back(PlaceOf(options_.number, record));
        },
        &unreadable);
    dropped_records_ = not_believed.size() + unreadable;
    if (status.ok()) status = Forget(not_believed);
  }
  if (!status.ok()) return Named(options_.dir, status);
  if (recovered_records_ + dropped_records_ != 0) {
    spdlog::info("{}: {} records are back, {} are not believed", options_.dir, recovered_records_, dropped_records_);
  }
  return absl::OkStatus();
}

std::set<SsdDisk::PageOfExtent> SsdDisk::FindBad() const {
  std::vector<const Extent*> newest;
  extents_.ForEach([&](const Extent& extent) { newest.push_back(&extent); });
  std::sort(newest.begin(), newest.end(),
            [](const Extent* a, const Extent* b) { return a->generation > b->generation; });
  std::set<PageOfExtent> bad;
  uint64_t left = options_.check_bytes;
  for (const Extent* extent : newest) {
    if (left == 0) break;
    std::vector<LogEntry> entries;
    const absl::Status status = catalog_->ForEachRecordOf(extent->number, [&](const CatalogRecord& record) {
      if (const auto contents = log_->ContentsOf(record.ns)) {
        entries.push_back(EntryOf(options_.number, record, *contents));
      }
    });
    // What the catalog cannot read is counted when all of it is asked.
    if (!status.ok()) spdlog::warn("{}: {}", options_.dir, status.ToString());
    while (!entries.empty() && left != 0) {
      std::vector<LogEntry> last;
      uint64_t bytes = 0;
      while (!entries.empty() && bytes < std::min(left, kCheckAtOnce)) {
        bytes += RecordBytes(entries.back().payload_bytes);
        last.push_back(std::move(entries.back()));
        entries.pop_back();
      }
      const std::vector<bool> good = ReadWhole(*extent, *catalog_, io_.get(), &last);
      for (size_t i = 0; i < last.size(); ++i) {
        if (!good[i]) bad.emplace(uint32_t{last[i].from.extent}, uint32_t{last[i].from.page});
      }
      left -= std::min(left, bytes);
    }
  }
  return bad;
}

// Were they left, they would be there again at a later start: when their namespace's number has
// been given to others, other records lie over them, or their block has been removed meanwhile.
absl::Status SsdDisk::Forget(const std::vector<RecordPlace>& places) {
  constexpr size_t kBatch = 10'000;
  for (size_t begin = 0; begin < places.size(); begin += kBatch) {
    CatalogBatch batch;
    for (size_t i = begin; i < std::min(places.size(), begin + kBatch); ++i) {
      batch.Remove(places[i].extent, places[i].page, places[i].inlined != 0);
    }
    if (absl::Status status = catalog_->Commit(&batch, true); !status.ok()) return status;
  }
  return absl::OkStatus();
}

bool SsdDisk::Believe(const CatalogRecord& record, const Restore& restore) {
  Extent* extent = extents_.Find(record.extent);
  const std::optional<RecordLog::Contents> contents = log_->ContentsOf(record.ns);
  const uint64_t bytes = RecordBytes(record.payload_bytes);
  const uint64_t begin = record.page * kPageBytes;
  // One that is there may be missing its file, or have another's.
  const bool believed = extent != nullptr && contents && extent->inlined == record.inlined &&
                        (record.inlined || begin + bytes <= extent->bytes);
  if (!believed || !restore(contents->index, record, PlaceOf(options_.number, record))) return false;
  ++recovered_records_;
  extent->live_bytes += bytes;
  ++extent->live_records;
  extent->end = record.inlined ? extent->bytes : std::max(extent->end, begin + bytes);
  return true;
}

void SsdDisk::Start() {
  log_->Start();
  reclaimer_ =
      std::make_unique<Reclaimer>(options_.number, log_.get(), &extents_, catalog_.get(), io_.get(), owner_, clock_);
}

void SsdDisk::Write(std::vector<SpillItem> items) {
  std::vector<LogEntry> entries;
  entries.reserve(items.size());
  for (SpillItem& item : items) {
    LogEntry& entry = entries.emplace_back();
    entry.payload_bytes = static_cast<uint32_t>(item.slot.header()->payload_bytes);
    entry.root = item.slot.header()->root;
    entry.item = std::move(item);
  }
  log_->Append(std::move(entries), 1);
}

void SsdDisk::Drop(const RecordPlace& place, uint32_t payload_bytes) {
  Extent* extent = extents_.Find(place.extent);
  extent->live_bytes.fetch_sub(RecordBytes(payload_bytes), std::memory_order_relaxed);
  extent->live_records.fetch_sub(1, std::memory_order_relaxed);
  log_->Remove(place);
}

SsdDiskStats SsdDisk::stats() const {
  SsdDiskStats stats;
  stats.dir = options_.dir;
  stats.io_engine = std::string(io_->engine_name());
  stats.direct = extents_.direct();
  stats.max_bytes = options_.max_bytes;
  stats.extent_bytes = extents_.extent_bytes();
  stats.free_extents = extents_.free();
  extents_.ForEach([&](const Extent& extent) {
    ++stats.extents;
    stats.live_bytes += extent.live_bytes;
    stats.live_records += extent.live_records;
  });
  if (reclaimer_ != nullptr) stats.reclaimed_extents = reclaimer_->reclaimed();
  stats.recovered_records = recovered_records_;
  stats.dropped_records = dropped_records_;
  stats.log = log_->stats();
  stats.reader = reader_->stats();
  stats.io = io_->stats();
  stats.catalog = catalog_->stats();
  return stats;
}

std::vector<SsdExtentInfo> SsdDisk::extents() const {
  std::vector<SsdExtentInfo> infos;
  extents_.ForEach([&](const Extent& extent) {
    infos.push_back({extent.number, extent.inlined, extent.bad, extent.state, extent.generation, extent.bytes,
                     extent.end, extent.live_bytes, extent.live_records});
  });
  return infos;
}

}  // namespace quarry::server
