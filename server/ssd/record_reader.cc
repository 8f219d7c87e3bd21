#include "server/ssd/record_reader.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <tuple>
#include <utility>

#include "common/checksum.h"
#include "server/ssd/aligned_buffer.h"
#include "server/ssd/record_header.h"

namespace quarry::server {
namespace {

// Neighbours are read together up to this size.
constexpr uint64_t kMaxReadBytes = 2 << 20;
constexpr size_t kMaxReadRecords = 128;

bool IsPart(const SsdRead& read) { return read.chunks.first != 0 || read.chunks.end < ChunkCount(read.payload_bytes); }

uint64_t EndPage(const SsdRead& read) { return read.place.page + RecordBytes(read.payload_bytes) / kPageBytes; }

}  // namespace

// Records that lie one behind the other.
struct RecordReader::Run {
  std::vector<SsdRead> reads;
  AlignedBuffer headers;
};

// Chunks of one record, and its header: two reads.
struct RecordReader::Part {
  SsdRead read;
  AlignedBuffer header;
  std::atomic<int> open{2};
  std::atomic<bool> failed{false};
};

RecordReader::RecordReader(ExtentSet* extents, const Catalog* catalog, IoQueue* io)
    : extents_(extents), catalog_(catalog), io_(io), inline_reader_([this] { InlineLoop(); }) {}

RecordReader::~RecordReader() {
  io_->Drain();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  inline_reader_.join();
}

void RecordReader::Read(std::vector<SsdRead> reads) {
  std::sort(reads.begin(), reads.end(), [](const SsdRead& a, const SsdRead& b) {
    return std::tie(a.place.extent, a.place.page) < std::tie(b.place.extent, b.place.page);
  });
  std::vector<SsdRead> run;
  uint64_t run_bytes = 0;
  for (SsdRead& read : reads) {
    if (read.place.inlined != 0) {
      std::lock_guard<std::mutex> lock(mutex_);
      inline_reads_.push_back(std::move(read));
      changed_.notify_all();
      continue;
    }
    if (IsPart(read)) {
      SubmitPart(std::move(read));
      continue;
    }
    const uint64_t bytes = RecordBytes(read.payload_bytes);
    const bool joins = !run.empty() && run.back().place.extent == read.place.extent &&
                       EndPage(run.back()) == read.place.page && run_bytes + bytes <= kMaxReadBytes &&
                       run.size() < kMaxReadRecords;
    if (!joins && !run.empty()) Submit(std::exchange(run, {}));
    run_bytes = joins ? run_bytes + bytes : bytes;
    run.push_back(std::move(read));
  }
  if (!run.empty()) Submit(std::move(run));
}

void RecordReader::Submit(std::vector<SsdRead> reads) {
  auto run = std::make_shared<Run>();
  run->reads = std::move(reads);
  uint64_t header_bytes = 0;
  for (const SsdRead& read : run->reads) header_bytes += RecordHeaderBytes(read.payload_bytes);
  run->headers = AlignedBuffer(header_bytes);

  IoRequest request;
  request.kind = IoRequest::Kind::kRead;
  request.fd = extents_->Find(run->reads.front().place.extent)->fd.get();
  request.offset = run->reads.front().place.page * kPageBytes;
  std::byte* header = run->headers.data();
  for (const SsdRead& read : run->reads) {
    const uint64_t bytes = RecordHeaderBytes(read.payload_bytes);
    request.parts.push_back({header, bytes});
    request.parts.push_back({read.to.payload(), InWholePages(read.payload_bytes)});
    header += bytes;
  }
  request.done = [this, run](int64_t result) {
    const std::byte* next = run->headers.data();
    for (SsdRead& read : run->reads) {
      const uint64_t bytes = RecordHeaderBytes(read.payload_bytes);
      Finish(&read, {next, bytes}, result < 0);
      next += bytes;
    }
  };
  io_->Submit(std::move(request));
}

void RecordReader::SubmitPart(SsdRead read) {
  const uint64_t header_bytes = RecordHeaderBytes(read.payload_bytes);
  const uint64_t begin = read.chunks.first * kChunkBytes;
  const uint64_t end = std::min(read.chunks.end * kChunkBytes, InWholePages(read.payload_bytes));
  const int fd = extents_->Find(read.place.extent)->fd.get();
  const uint64_t offset = read.place.page * kPageBytes;
  auto part = std::make_shared<Part>();
  part->read = std::move(read);
  part->header = AlignedBuffer(header_bytes);
  const auto submit = [&](uint64_t at, std::byte* to, uint64_t bytes) {
    IoRequest request;
    request.kind = IoRequest::Kind::kRead;
    request.fd = fd;
    request.offset = at;
    request.parts.push_back({to, bytes});
    request.done = [this, part, header_bytes](int64_t result) {
      if (result < 0) part->failed = true;
      if (part->open.fetch_sub(1) == 1) Finish(&part->read, {part->header.data(), header_bytes}, part->failed);
    };
    io_->Submit(std::move(request));
  };
  std::byte* const payload = part->read.to.payload();
  submit(offset, part->header.data(), header_bytes);
  submit(offset + header_bytes + begin, payload + begin, end - begin);
}

bool RecordReader::IsGood(const SsdRead& read, absl::Span<const std::byte> header) const {
  RecordHeader expected;
  expected.identity = {read.namespace_id, read.group, read.shard, read.hash};
  expected.generation = extents_->Find(read.place.extent)->generation;
  expected.payload_bytes = read.payload_bytes;
  uint64_t root;
  absl::Span<const uint64_t> sums;
  if (!RecordHolds(header, read.to.payload(), expected, &root, &sums, read.chunks)) return false;
  SlotHeader& slot = *read.to.header();
  slot.root = root;
  slot.payload_bytes = read.payload_bytes;
  std::copy(sums.begin(), sums.end(), slot.sums);
  return true;
}

void RecordReader::Finish(SsdRead* read, absl::Span<const std::byte> header, bool io_error) {
  auto outcome = SsdRead::Outcome::kGood;
  if (io_error) {
    outcome = SsdRead::Outcome::kIoError;
    errors_.fetch_add(1, std::memory_order_relaxed);
  } else if (!IsGood(*read, header)) {
    outcome = SsdRead::Outcome::kCorrupt;
    corrupt_.fetch_add(1, std::memory_order_relaxed);
  } else {
    records_.fetch_add(1, std::memory_order_relaxed);
    const uint64_t end = std::min<uint64_t>(ChunkCount(read->payload_bytes), read->chunks.end) * kChunkBytes;
    bytes_.fetch_add(std::min<uint64_t>(read->payload_bytes, end) - read->chunks.first * kChunkBytes,
                     std::memory_order_relaxed);
  }
  extents_->Find(read->place.extent)->readers.fetch_sub(1);
  read->done(outcome, std::move(read->to), read->is_lent);
}

void RecordReader::InlineLoop() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !inline_reads_.empty(); });
    if (inline_reads_.empty()) return;
    SsdRead read = std::move(inline_reads_.front());
    inline_reads_.pop_front();
    lock.unlock();
    ReadInline(&read);
    lock.lock();
  }
}

void RecordReader::ReadInline(SsdRead* read) {
  const absl::StatusOr<std::string> stored = catalog_->ReadPayload(read->place.extent, read->place.page);
  const uint64_t header_bytes = RecordHeaderBytes(read->payload_bytes);
  if (!stored.ok() || stored->size() != header_bytes + read->payload_bytes) {
    const bool changed = stored.ok() || absl::IsNotFound(stored.status()) || absl::IsDataLoss(stored.status());
    return Finish(read, {}, !changed);
  }
  AlignedBuffer header(header_bytes);
  std::memcpy(header.data(), stored->data(), header_bytes);
  std::memcpy(read->to.payload(), stored->data() + header_bytes, read->payload_bytes);
  Finish(read, {header.data(), header_bytes}, false);
}

}  // namespace quarry::server
