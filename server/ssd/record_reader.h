// The reading side of a disk.
#ifndef QUARRY_SERVER_SSD_RECORD_READER_H_
#define QUARRY_SERVER_SSD_RECORD_READER_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/types/span.h"
#include "server/ssd/catalog.h"
#include "server/ssd/extent_set.h"
#include "server/ssd/io/io_queue.h"
#include "server/ssd/ssd_owner.h"

namespace quarry::server {

struct RecordReaderStats {
  uint64_t records = 0;  // read, and good
  uint64_t bytes = 0;    // of their payload
  uint64_t corrupt = 0;
  uint64_t errors = 0;
};

// Reads records straight into slots, neighbours in one read, or chunks of them, and believes none
// whose header or sums do not hold. Thread-safe.
class RecordReader {
 public:
  // All outlive it.
  RecordReader(ExtentSet* extents, const Catalog* catalog, IoQueue* io);
  // Waits for what is being read.
  ~RecordReader();

  // Under the mutex that guards the record's place: its extent is not written over until the
  // Read that follows has ended.
  void Begin(const RecordPlace& place) { extents_->Find(place.extent)->readers.fetch_add(1); }
  // There will be no Read.
  void End(const RecordPlace& place) { extents_->Find(place.extent)->readers.fetch_sub(1); }
  // Each of them was begun. Never blocks.
  void Read(std::vector<SsdRead> reads);

  RecordReaderStats stats() const { return {records_, bytes_, corrupt_, errors_}; }

 private:
  struct Run;
  struct Part;

  void Submit(std::vector<SsdRead> run);
  void SubmitPart(SsdRead read);
  void Finish(SsdRead* read, absl::Span<const std::byte> header, bool io_error);
  bool IsGood(const SsdRead& read, absl::Span<const std::byte> header) const;
  void InlineLoop();
  void ReadInline(SsdRead* read);

  ExtentSet* const extents_;
  const Catalog* const catalog_;
  IoQueue* const io_;
  std::atomic<uint64_t> records_{0}, bytes_{0}, corrupt_{0}, errors_{0};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<SsdRead> inline_reads_;  // guarded by mutex_; bounded by who holds the slots
  bool stopping_ = false;             // guarded by mutex_
  std::thread inline_reader_;         // RocksDB's reads block
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SSD_RECORD_READER_H_
