#include "tests/unit/transport/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

namespace quarry {
namespace {

constexpr std::byte kGap{0xA5};
constexpr std::byte kFresh{0x5A};

size_t PageBytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

struct Layout {
  SegmentList segments;  // base counts from the start of the memory
  size_t memory_bytes = 0;
};

void AddStrided(size_t length, size_t gap, size_t bytes, Layout* layout) {
  const size_t stride = length + gap;
  const size_t whole = bytes / length;
  if (whole > 0) layout->segments.push_back({nullptr, length, stride, whole});
  if (bytes % length > 0) {
    layout->segments.push_back({reinterpret_cast<std::byte*>(whole * stride), bytes % length, 0, 1});
  }
  layout->memory_bytes = whole * stride + bytes % length;
}

// Pieces of odd sizes, in falling order of address.
void AddOdd(size_t bytes, Layout* layout) {
  constexpr size_t kSizes[] = {1, 4097, 3, 777, 65'537, 12'289, 7};
  for (size_t i = 0; bytes > 0; ++i) {
    const size_t length = std::min(kSizes[i % std::size(kSizes)], bytes);
    layout->segments.push_back({reinterpret_cast<std::byte*>(layout->memory_bytes), length, 0, 1});
    layout->memory_bytes += length + i % 5;
    bytes -= length;
  }
  std::reverse(layout->segments.begin(), layout->segments.end());
}

Layout LayoutOf(Shape shape, size_t bytes) {
  Layout layout;
  switch (shape) {
    case Shape::kContiguous:
      AddStrided(bytes, 0, bytes, &layout);
      break;
    case Shape::kStrided64K:
      AddStrided(64 << 10, 4096, bytes, &layout);
      break;
    case Shape::kStrided8K:
      AddStrided(8 << 10, 64, bytes, &layout);
      break;
    case Shape::kOdd:
      AddOdd(bytes, &layout);
      break;
  }
  return layout;
}

std::atomic<MemoryKind> buffer_memory{MemoryKind::kPrivate};

// A sealed memfd, or a file in /dev/shm that is deleted already.
int OpenFile(MemoryKind kind, size_t bytes) {
  static std::atomic<int> count{0};
  const std::string path =
      "/dev/shm/quarry-test-" + std::to_string(getpid()) + "-" + std::to_string(count.fetch_add(1));
  const int fd = kind == MemoryKind::kSealedMemfd ? memfd_create("quarry-test", MFD_CLOEXEC | MFD_ALLOW_SEALING)
                                                  : open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) std::abort();
  if (kind == MemoryKind::kShmFile) unlink(path.c_str());
  if (kind == MemoryKind::kSealedMemfd && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) std::abort();
  return fd;
}

template <typename Function>
void ForEachPiece(absl::Span<const Segment> segments, Function function) {
  for (const Segment& segment : segments) {
    for (size_t i = 0; i < segment.count; ++i) function(segment.base + i * segment.stride, segment.length);
  }
}

}  // namespace

Bytes Payload(uint64_t seed, size_t bytes) {
  std::mt19937_64 random(seed);
  Bytes payload(bytes);
  for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(payload.data() + i, &word, std::min(sizeof word, bytes - i));
  }
  return payload;
}

GuardedMemory::GuardedMemory(size_t bytes, MemoryKind kind) : size_(bytes) {
  const size_t page = PageBytes();
  page_bytes_ = (bytes + page - 1) / page * page;
  void* mapping = mmap(nullptr, page_bytes_ + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) std::abort();
  mapping_ = static_cast<std::byte*>(mapping);
  data_ = mapping_ + page + page_bytes_ - bytes;
  if (kind != MemoryKind::kPrivate) {
    fd_ = OpenFile(kind, page_bytes_);
    if (mmap(mapping_ + page, page_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd_, 0) == MAP_FAILED) {
      std::abort();
    }
  }
  Unlock();
}

GuardedMemory::~GuardedMemory() {
  munmap(mapping_, page_bytes_ + 2 * PageBytes());
  if (fd_ >= 0) close(fd_);
}

void GuardedMemory::Lock() {
  if (fd_ >= 0) locked_.assign(data_, data_ + size_);
  if (mprotect(mapping_ + PageBytes(), page_bytes_, PROT_NONE) != 0) std::abort();
}

void GuardedMemory::Unlock() {
  if (mprotect(mapping_ + PageBytes(), page_bytes_, PROT_READ | PROT_WRITE) != 0) std::abort();
  if (!locked_.empty() && !std::equal(locked_.begin(), locked_.end(), data_)) {
    std::fprintf(stderr, "locked memory was written to\n");
    std::abort();
  }
  locked_.clear();
}

ReplaceableMemory::ReplaceableMemory(const Bytes& before, const Bytes& after)
    : mapped_bytes_((before.size() + PageBytes() - 1) / PageBytes() * PageBytes()),
      fd_(memfd_create("quarry-test", MFD_CLOEXEC)) {
  const auto write = [&](const Bytes& bytes, size_t offset) {
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t part = pwrite(fd_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
      if (part <= 0) std::abort();
      done += static_cast<size_t>(part);
    }
  };
  if (fd_ < 0 || ftruncate(fd_, static_cast<off_t>(2 * mapped_bytes_)) != 0) std::abort();
  write(before, 0);
  write(after, mapped_bytes_);
  void* mapping = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (mapping == MAP_FAILED) std::abort();
  data_ = static_cast<std::byte*>(mapping);
}

ReplaceableMemory::~ReplaceableMemory() {
  munmap(data_, mapped_bytes_);
  close(fd_);
}

void ReplaceableMemory::Replace() {
  // Not by mmap(): ThreadSanitizer takes that for a write that races, which is the point.
  const auto mapped = syscall(SYS_mmap, data_, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd_,
                              static_cast<off_t>(mapped_bytes_));
  if (mapped != reinterpret_cast<intptr_t>(data_)) std::abort();
}

void ScatteredBuffer::UseMemory(MemoryKind kind) { buffer_memory = kind; }

ScatteredBuffer::ScatteredBuffer(Shape shape, size_t bytes)
    : size_(bytes), memory_(LayoutOf(shape, bytes).memory_bytes, buffer_memory), initial_(bytes, kFresh) {
  segments_ = LayoutOf(shape, bytes).segments;
  for (Segment& segment : segments_) segment.base = memory_.data() + reinterpret_cast<size_t>(segment.base);
  std::fill_n(memory_.data(), memory_.size(), kGap);
  Fill(initial_);
}

void ScatteredBuffer::Fill(const Bytes& payload) {
  const std::byte* from = payload.data();
  ForEachPiece(segments_, [&](std::byte* piece, size_t length) {
    std::memcpy(piece, from, length);
    from += length;
  });
}

Bytes ScatteredBuffer::Item() const {
  Bytes item;
  item.reserve(size_);
  ForEachPiece(segments_, [&](std::byte* piece, size_t length) { item.insert(item.end(), piece, piece + length); });
  return item;
}

bool ScatteredBuffer::GapsIntact() const {
  Bytes image(memory_.bytes().begin(), memory_.bytes().end());
  ForEachPiece(segments_, [&](std::byte* piece, size_t length) {
    std::fill_n(image.begin() + (piece - memory_.data()), length, kGap);
  });
  return std::all_of(image.begin(), image.end(), [](std::byte byte) { return byte == kGap; });
}

bool ScatteredBuffer::Holds(const Bytes& payload) const { return GapsIntact() && Item() == payload; }

}  // namespace quarry
