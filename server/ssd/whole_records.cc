#include "server/ssd/whole_records.h"

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <string>

#include "server/ssd/record_header.h"

namespace quarry::server {
namespace {

bool IsGood(const Extent& extent, const LogEntry& entry) {
  RecordHeader expected;
  expected.identity = {entry.item.ns->id, entry.item.group, entry.item.shard, entry.item.hash};
  expected.generation = extent.generation;
  expected.payload_bytes = entry.payload_bytes;
  const uint64_t header_bytes = RecordHeaderBytes(entry.payload_bytes);
  uint64_t root;
  absl::Span<const uint64_t> sums;
  return RecordHolds({entry.bytes.data(), header_bytes}, entry.bytes.data() + header_bytes, expected, &root, &sums) &&
         root == entry.root;
}

int64_t ReadInlined(const Catalog& catalog, LogEntry* entry) {
  const absl::StatusOr<std::string> stored = catalog.ReadPayload(entry->from.extent, entry->from.page);
  const bool whole = stored.ok() && stored->size() == RecordHeaderBytes(entry->payload_bytes) + entry->payload_bytes;
  if (!whole) return -EIO;
  stored->copy(reinterpret_cast<char*>(entry->bytes.data()), stored->size());
  return static_cast<int64_t>(stored->size());
}

}  // namespace

LogEntry EntryOf(uint32_t disk, const CatalogRecord& record, const RecordLog::Contents& contents) {
  LogEntry entry;
  entry.from.disk = disk;
  entry.from.extent = record.extent;
  entry.from.page = record.page;
  entry.from.inlined = record.inlined ? 1 : 0;
  entry.item.ns = contents.ns;
  entry.item.ns_index = contents.index;
  entry.item.group = record.group;
  entry.item.shard = record.shard;
  entry.item.hash = std::string(record.hash);
  entry.item.depth = record.depth;
  entry.item.stored_at_ms = record.stored_at_ms;
  entry.payload_bytes = record.payload_bytes;
  entry.root = record.root;
  entry.moved = true;
  return entry;
}

std::vector<bool> ReadWhole(const Extent& extent, const Catalog& catalog, IoQueue* io, std::vector<LogEntry>* entries) {
  std::mutex mutex;
  std::condition_variable ended;
  size_t open = entries->size();
  std::vector<int64_t> results(entries->size());
  const auto end = [&](size_t i, int64_t result) {
    std::lock_guard<std::mutex> lock(mutex);
    results[i] = result;
    if (--open == 0) ended.notify_one();
  };
  for (size_t i = 0; i < entries->size(); ++i) {
    LogEntry& entry = (*entries)[i];
    entry.bytes = AlignedBuffer(RecordBytes(entry.payload_bytes));
    if (extent.inlined) {
      end(i, ReadInlined(catalog, &entry));
      continue;
    }
    IoRequest request;
    request.fd = extent.fd.get();
    request.offset = entry.from.page * kPageBytes;
    request.parts.push_back({entry.bytes.data(), RecordBytes(entry.payload_bytes)});
    request.done = [&end, i](int64_t result) { end(i, result); };
    io->Submit(std::move(request));
  }
  {
    std::unique_lock<std::mutex> lock(mutex);
    ended.wait(lock, [&] { return open == 0; });
  }
  std::vector<bool> good(entries->size());
  for (size_t i = 0; i < entries->size(); ++i) good[i] = results[i] >= 0 && IsGood(extent, (*entries)[i]);
  return good;
}

}  // namespace quarry::server
