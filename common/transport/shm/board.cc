#include "common/transport/shm/board.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/memory_file.h"
#include "quarry/segments.h"

namespace quarry::transport::shm {
namespace {

constexpr size_t kGatesBytes = (sizeof(Gates) + kPageBytes - 1) / kPageBytes * kPageBytes;
constexpr uint64_t kExtentStep = 256;  // extents are multiples of it, so that few lengths differ

uint32_t SlotOf(uint64_t request, uint32_t probe) { return static_cast<uint32_t>((request + probe) % kRequestSlots); }

absl::Status ReadAt(int fd, uint64_t offset, void* out, size_t bytes) {
  if (offset > kItemsBytes || bytes > kItemsBytes - offset) {
    return absl::InvalidArgumentError("the client's items lie beyond their file");
  }
  auto* to = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = pread(fd, to, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return absl::InvalidArgumentError("the client's items cannot be read");
    to += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

}  // namespace

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Mapping& Mapping::operator=(Mapping other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, size_);
}

absl::StatusOr<Mapping> Mapping::Map(int fd, uint64_t offset, size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (data == MAP_FAILED) return ErrnoStatus(errno, "mmap");
  return Mapping(static_cast<std::byte*>(data), bytes);
}

absl::StatusOr<std::unique_ptr<ClientBoard>> ClientBoard::Create() {
  std::unique_ptr<ClientBoard> board(new ClientBoard());
  auto gates = MakeMemoryFile("quarry-gates", kGatesBytes);
  if (!gates.ok()) return gates.status();
  board->gates_fd_ = *std::move(gates);
  auto items = MakeMemoryFile("quarry-items", kItemsBytes);
  if (!items.ok()) return items.status();
  board->items_fd_ = *std::move(items);
  auto gates_map = Mapping::Map(board->gates_fd_.get(), 0, kGatesBytes);
  if (!gates_map.ok()) return gates_map.status();
  board->gates_map_ = *std::move(gates_map);
  auto items_map = Mapping::Map(board->items_fd_.get(), 0, kItemsBytes);
  if (!items_map.ok()) return items_map.status();
  board->items_map_ = *std::move(items_map);
  std::memset(board->gates_map_.data(), 0, kGatesBytes);  // all of it is there: the server insists
  board->free_.emplace(0, kItemsBytes);
  return board;
}

std::optional<uint64_t> ClientBoard::Allocate(uint64_t bytes) {
  // The first that fits: what is in use stays together at the beginning.
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second < bytes) continue;
    const auto [offset, length] = *it;
    free_.erase(it);
    if (length > bytes) free_.emplace(offset + bytes, length - bytes);
    return offset;
  }
  return std::nullopt;
}

std::optional<uint32_t> ClientBoard::Expose(uint64_t request, std::vector<ItemRecord> items,
                                            absl::Span<const Descriptor> descriptors) {
  const uint64_t items_bytes = items.size() * sizeof(ItemRecord);
  const uint64_t wanted = items_bytes + descriptors.size() * sizeof(Descriptor);
  const uint64_t bytes = std::max<uint64_t>(1, (wanted + kExtentStep - 1) / kExtentStep) * kExtentStep;
  std::lock_guard lock(mutex_);
  uint32_t slot = 0;
  uint32_t probe = 0;
  for (; probe < kMostProbes; ++probe) {
    slot = SlotOf(request, probe);
    if (request_gate(slot).free()) break;
  }
  const auto at = probe < kMostProbes ? Allocate(bytes) : std::nullopt;
  if (!at.has_value()) return std::nullopt;
  used_.emplace(slot, std::pair(*at, bytes));
  for (ItemRecord& item : items) item.descriptors_at = *at + items_bytes + item.descriptors_at * sizeof(Descriptor);
  std::byte* to = items_map_.data() + *at;
  if (!items.empty()) std::memcpy(to, items.data(), items_bytes);
  if (!descriptors.empty()) std::memcpy(to + items_bytes, descriptors.data(), descriptors.size() * sizeof(Descriptor));
  RequestSlot& shown = gates().requests[slot];
  shown.request.store(request, std::memory_order_relaxed);
  shown.items_at.store(*at, std::memory_order_relaxed);
  shown.items.store(items.size(), std::memory_order_relaxed);
  request_gate(slot).Open(static_cast<uint32_t>(request));
  return slot;
}

void ClientBoard::Free(uint32_t slot) {
  std::lock_guard lock(mutex_);
  auto node = used_.extract(slot);
  if (node.empty()) return;
  auto [offset, length] = node.mapped();
  auto after = free_.upper_bound(offset);
  if (after != free_.end() && after->first == offset + length) {
    length += after->second;
    after = free_.erase(after);
  }
  if (after != free_.begin()) {
    auto before = std::prev(after);
    if (before->first + before->second == offset) {
      offset = before->first;
      length += before->second;
      free_.erase(before);
    }
  }
  free_.emplace(offset, length);
  request_gate(slot).Free();
}

absl::StatusOr<std::unique_ptr<ServerBoard>> ServerBoard::Create(UniqueFd gates, UniqueFd items) {
  struct stat info;
  if (!IsMemoryFile(gates.get(), &info) || !CannotShrink(gates.get()) ||
      info.st_size != static_cast<off_t>(kGatesBytes) || !IsAllAllocated(info)) {
    return absl::InvalidArgumentError(
        absl::StrCat("gates: must be a sealed memfd of ", kGatesBytes, " bytes without holes"));
  }
  if (!IsMemoryFile(items.get(), &info)) return absl::InvalidArgumentError("items: must be a memfd");
  auto mapping = Mapping::Map(gates.get(), 0, kGatesBytes);
  if (!mapping.ok()) return mapping.status();
  return std::unique_ptr<ServerBoard>(new ServerBoard(std::move(items), *std::move(mapping)));
}

std::optional<ServerBoard::Entered> ServerBoard::Enter(uint64_t request) {
  for (uint32_t probe = 0; probe < kMostProbes; ++probe) {
    const uint32_t slot = SlotOf(request, probe);
    RequestSlot& shown = gates().requests[slot];
    Gate gate(&shown.gate);
    if (shown.request.load(std::memory_order_relaxed) != request || !gate.Enter(static_cast<uint32_t>(request))) {
      continue;
    }
    return Entered{slot, shown.items_at.load(std::memory_order_relaxed), shown.items.load(std::memory_order_relaxed)};
  }
  return std::nullopt;
}

absl::Status ServerBoard::ReadItem(const Entered& entered, uint32_t item, ItemRecord* record) const {
  if (item >= entered.items) return absl::NotFoundError("the request has no such item");
  uint64_t at = uint64_t{item} * sizeof(ItemRecord);
  if (__builtin_add_overflow(at, entered.items_at, &at)) at = kItemsBytes + 1;
  return ReadAt(items_.get(), at, record, sizeof *record);
}

absl::Status ServerBoard::ReadDescriptors(const ItemRecord& record, std::vector<Descriptor>* descriptors) const {
  if (record.descriptors == 0 || record.descriptors > kMaxSegmentPieces || record.descriptors > record.bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("descriptors: ", record.descriptors, ", must be 1 to ", kMaxSegmentPieces));
  }
  descriptors->resize(record.descriptors);
  if (record.descriptors == 1) {
    descriptors->front() = record.only;
    return absl::OkStatus();
  }
  return ReadAt(items_.get(), record.descriptors_at, descriptors->data(), descriptors->size() * sizeof(Descriptor));
}

}  // namespace quarry::transport::shm
