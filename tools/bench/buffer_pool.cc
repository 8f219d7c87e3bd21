#include "tools/bench/buffer_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/memory_file.h"
#include "tools/bench/block_content.h"

namespace quarry::bench {

absl::StatusOr<std::unique_ptr<BufferPool>> BufferPool::Create(size_t bytes, size_t piece_bytes, uint64_t seed,
                                                               Buffers kind) {
  if (piece_bytes == 0 || piece_bytes % sizeof(uint64_t) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("pieces of ", piece_bytes, " bytes: not a multiple of 8"));
  }
  const size_t pieces = bytes / piece_bytes;
  if (pieces == 0 || pieces > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(bytes, " bytes of buffers in pieces of ", piece_bytes));
  }
  if (kind == Buffers::kCuda) {
    auto gpu = GpuMemory::Create(bytes);
    if (!gpu.ok()) return gpu.status();
    std::byte* const base = (*gpu)->base();
    return std::unique_ptr<BufferPool>(new BufferPool(UniqueFd(), *std::move(gpu), base, bytes, piece_bytes, seed));
  }
  const bool memfd = kind == Buffers::kMemfd;
  UniqueFd file;
  if (memfd) {
    auto made = MakeMemoryFile("quarry-bench", bytes);
    if (!made.ok()) return made.status();
    file = *std::move(made);
  }
  const int flags = memfd ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, file.get(), 0);
  if (memory == MAP_FAILED) return absl::ResourceExhaustedError(absl::StrCat("cannot map ", bytes, " bytes"));
  madvise(memory, bytes, MADV_HUGEPAGE);  // a wish: smaller pages do as well
  std::memset(memory, 0x5a, bytes);
  return std::unique_ptr<BufferPool>(
      new BufferPool(std::move(file), nullptr, static_cast<std::byte*>(memory), bytes, piece_bytes, seed));
}

BufferPool::BufferPool(UniqueFd file, std::unique_ptr<GpuMemory> gpu, std::byte* base, size_t bytes, size_t piece_bytes,
                       uint64_t seed)
    : file_(std::move(file)),
      gpu_(std::move(gpu)),
      base_(base),
      bytes_(bytes),
      piece_bytes_(piece_bytes),
      random_(Mix(seed)),
      free_(bytes / piece_bytes) {
  for (size_t i = 0; i < free_.size(); ++i) free_[i] = static_cast<uint32_t>(i);
}

BufferPool::~BufferPool() {
  if (gpu_ == nullptr) munmap(base_, bytes_);
}

SegmentList BufferPool::Take(size_t bytes) {
  const size_t pieces = (bytes + piece_bytes_ - 1) / piece_bytes_;
  SegmentList segments;
  if (pieces > free_.size()) return segments;
  segments.reserve(pieces);
  for (size_t left = bytes; left > 0; left -= segments.back().length) {
    random_ = Mix(random_);
    std::swap(free_[random_ % free_.size()], free_.back());
    segments.push_back({.base = base_ + free_.back() * piece_bytes_, .length = std::min(left, piece_bytes_)});
    free_.pop_back();
  }
  return segments;
}

void BufferPool::Return(const SegmentList& segments) {
  for (const Segment& segment : segments) {
    free_.push_back(static_cast<uint32_t>(static_cast<size_t>(segment.base - base_) / piece_bytes_));
  }
}

absl::Status BufferPool::Fill(uint64_t id) {
  if (gpu_ == nullptr) {
    FillBlock(id, SegmentList{{.base = base_, .length = bytes_}});
    return absl::OkStatus();
  }
  copy_.resize(bytes_);
  FillBlock(id, SegmentList{{.base = copy_.data(), .length = bytes_}});
  return gpu_->Write(base_, copy_.data(), bytes_);
}

absl::StatusOr<SegmentList> BufferPool::Readable(const SegmentList& segments) {
  if (gpu_ == nullptr) return segments;
  copy_.resize(TotalBytes(segments));
  SegmentList copies;
  std::byte* to = copy_.data();
  for (const Segment& segment : segments) {
    if (absl::Status status = gpu_->Read(to, segment.base, segment.length); !status.ok()) return status;
    copies.push_back({.base = to, .length = segment.length});
    to += segment.length;
  }
  return copies;
}

}  // namespace quarry::bench
