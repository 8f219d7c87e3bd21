#include "server/dram/reserved_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif

namespace quarry::server {

absl::StatusOr<ReservedMemory> ReservedMemory::Create(size_t bytes, Pages pages) {
  ReservedMemory memory;
  const size_t mapping_bytes = bytes + kAlignment;
  void* mapping =
      mmap(nullptr, mapping_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot reserve ", bytes, " bytes: ", strerror(errno)));
  }
  memory.mapping_ = mapping;
  memory.mapping_bytes_ = mapping_bytes;
  const uintptr_t start = reinterpret_cast<uintptr_t>(mapping);
  const uintptr_t aligned = (start + kAlignment - 1) & ~uintptr_t{kAlignment - 1};
  memory.data_ = static_cast<std::byte*>(mapping) + (aligned - start);
  memory.bytes_ = bytes;
  // Only advice: a kernel without huge pages serves small ones.
  if (pages == Pages::kHuge) (void)madvise(memory.data_, bytes, MADV_HUGEPAGE);
  return memory;
}

absl::Status ReservedMemory::Populate() {
  if (madvise(data_, bytes_, MADV_POPULATE_WRITE) == 0) return absl::OkStatus();
  if (errno != EINVAL) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot populate ", bytes_, " bytes: ", strerror(errno)));
  }
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (size_t offset = 0; offset < bytes_; offset += page) {
    *reinterpret_cast<volatile std::byte*>(data_ + offset) = std::byte{0};
  }
  return absl::OkStatus();
}

ReservedMemory::~ReservedMemory() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
}

}  // namespace quarry::server
