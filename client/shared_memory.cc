// Memory that a node on the same host can map.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/client_impl.h"
#include "common/net/memory_file.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace quarry {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

// 0: not known.
uint64_t AvailableBytes() {
  FILE* file = std::fopen("/proc/meminfo", "re");
  if (file == nullptr) return 0;
  unsigned long long kib = 0;
  char line[128];
  while (std::fgets(line, sizeof line, file) != nullptr && std::sscanf(line, "MemAvailable: %llu kB", &kib) != 1) {
  }
  std::fclose(file);
  return uint64_t{kib} << 10;
}

absl::Status CheckSize(size_t bytes) {
  const uint64_t most = AvailableBytes() / 4 * 3;
  if (bytes == 0) return absl::InvalidArgumentError("bytes: must be at least 1");
  if (most == 0 || bytes <= most) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("bytes: at most ", most, ", three quarters of the memory that is available, got ", bytes));
}

// All pages, now: the node refuses memory with holes.
absl::Status Populate(std::byte* data, size_t bytes) {
  madvise(data, bytes, MADV_HUGEPAGE);  // best effort: the system may not want it for files in memory
  if (madvise(data, bytes, MADV_POPULATE_WRITE) == 0) return absl::OkStatus();
  if (errno != EINVAL) return ErrnoStatus(errno, "cannot allocate shared memory");
  for (size_t at = 0; at < bytes; at += kPageBytes) *reinterpret_cast<volatile std::byte*>(data + at) = std::byte{0};
  return absl::OkStatus();
}

}  // namespace

struct SharedMemory::Mapping {
  ~Mapping() {
    if (data != nullptr) munmap(data, bytes);
  }
  UniqueFd file;  // the client finds it again by it when it connects again
  std::byte* data = nullptr;
  size_t bytes = 0;
};

SharedMemory::SharedMemory() = default;
SharedMemory::SharedMemory(SharedMemory&&) noexcept = default;

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(region_, other.region_);
  return *this;
}

SharedMemory::~SharedMemory() { region_ = MemoryRegion(); }

absl::StatusOr<SharedMemory> ClientImpl::AllocateShared(size_t bytes) {
  if (absl::Status status = CheckOwner(); !status.ok()) return status;
  if (absl::Status status = CheckSize(bytes); !status.ok()) return status;
  const size_t page = bytes >= kHugePageBytes ? kHugePageBytes : kPageBytes;
  SharedMemory memory;
  memory.mapping_ = std::make_unique<SharedMemory::Mapping>();
  SharedMemory::Mapping& mapping = *memory.mapping_;
  mapping.bytes = (bytes + page - 1) / page * page;
  auto file = MakeMemoryFile("quarry", mapping.bytes);
  if (!file.ok()) return file.status();
  mapping.file = *std::move(file);
  void* data = mmap(nullptr, mapping.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, mapping.file.get(), 0);
  if (data == MAP_FAILED) return ErrnoStatus(errno, "cannot map shared memory");
  mapping.data = static_cast<std::byte*>(data);
  if (absl::Status status = Populate(mapping.data, mapping.bytes); !status.ok()) return status;
  auto region = RegisterMemory({mapping.data, bytes});
  if (!region.ok()) return region.status();
  memory.region_ = *std::move(region);
  return memory;
}

}  // namespace quarry
