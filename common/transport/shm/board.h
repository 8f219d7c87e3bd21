// What a client shows its server: which requests it exposes, where their items lie, and the
// gates of requests and regions. Two memfds of the client: `gates`, which the server maps, and
// `items`, which it only reads by pread, so that nothing the client does to it can harm.
#ifndef QUARRY_COMMON_TRANSPORT_SHM_BOARD_H_
#define QUARRY_COMMON_TRANSPORT_SHM_BOARD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/net/socket.h"
#include "common/transport/descriptor.h"
#include "common/transport/shm/gate.h"

namespace quarry::transport::shm {

inline constexpr uint32_t kRequestSlots = 4096;
inline constexpr uint32_t kRegionSlots = 4096;
// How far a request lies from the slot of its number, at most.
inline constexpr uint32_t kMostProbes = 64;
// A region is named by its key, which is never used again: where its gate is, and a count.
constexpr uint32_t RegionSlotOf(uint32_t key) { return key % kRegionSlots; }
// Sparse: it costs what is used of it.
inline constexpr size_t kItemsBytes = size_t{256} << 20;

struct ItemRecord {
  static constexpr uint32_t kChecksum = 1;  // the client verifies what is written, sums what is read
  static constexpr uint32_t kByStream = 2;  // not all of it can be reached: it goes by data streams

  uint64_t bytes = 0;
  uint32_t flags = 0;
  uint32_t descriptors = 0;
  uint64_t descriptors_at = 0;  // in `items`; of one descriptor, `only` is it
  uint64_t reserved = 0;
  Descriptor only;
};
static_assert(sizeof(ItemRecord) == 64);

struct RequestSlot {
  Gate::Word gate;
  std::atomic<uint64_t> request;
  std::atomic<uint64_t> items_at;  // ItemRecords, in `items`
  std::atomic<uint64_t> items;
};

struct Gates {
  std::atomic<uint64_t> elsewhere;  // requests that found no place here: they go by data streams
  std::atomic<uint64_t> reserved[7];
  RequestSlot requests[kRequestSlots];
  Gate::Word regions[kRegionSlots];
};

// Memory that is mapped as long as this lives.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping other) noexcept;
  ~Mapping();
  // Shared, to read and write.
  static absl::StatusOr<Mapping> Map(int fd, uint64_t offset, size_t bytes);

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  Mapping(std::byte* data, size_t size) : data_(data), size_(size) {}
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// The client's side. Thread-safe.
class ClientBoard {
 public:
  static absl::StatusOr<std::unique_ptr<ClientBoard>> Create();

  int gates_fd() const { return gates_fd_.get(); }
  int items_fd() const { return items_fd_.get(); }

  // A request's items; `descriptors_at` counts from the first of `descriptors` and is made
  // right. Returns the slot, or nullopt: there is no room.
  std::optional<uint32_t> Expose(uint64_t request, std::vector<ItemRecord> items,
                                 absl::Span<const Descriptor> descriptors);
  Gate request_gate(uint32_t slot) { return Gate(&gates().requests[slot].gate); }
  // After the gate was withdrawn and is used no more.
  void Free(uint32_t slot);
  void CountElsewhere(int change) { gates().elsewhere.fetch_add(static_cast<uint64_t>(change)); }
  Gate region_gate(uint32_t key) { return Gate(&gates().regions[RegionSlotOf(key)]); }

 private:
  ClientBoard() = default;
  Gates& gates() { return *reinterpret_cast<Gates*>(gates_map_.data()); }
  // A free extent of `items`; nullopt: none is long enough.
  std::optional<uint64_t> Allocate(uint64_t bytes);

  UniqueFd gates_fd_;
  UniqueFd items_fd_;
  Mapping gates_map_;
  Mapping items_map_;
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> free_;                       // guarded by mutex_; offset to length
  std::map<uint32_t, std::pair<uint64_t, uint64_t>> used_;  // guarded by mutex_; of each slot
};

// The server's side. Thread-safe.
class ServerBoard {
 public:
  // InvalidArgument: they are not what a client's board is made of.
  static absl::StatusOr<std::unique_ptr<ServerBoard>> Create(UniqueFd gates, UniqueFd items);

  // A request that has been entered: Leave it.
  struct Entered {
    uint32_t slot = 0;
    uint64_t items_at = 0;
    uint64_t items = 0;
  };
  std::optional<Entered> Enter(uint64_t request);
  bool Withdrawn(const Entered& entered) { return Gate(&gates().requests[entered.slot].gate).withdrawn(); }
  // True: the client waits to hear of it.
  bool Leave(const Entered& entered) { return Gate(&gates().requests[entered.slot].gate).Leave(); }
  // Whether what is not here may be exposed elsewhere.
  bool elsewhere() { return gates().elsewhere.load(std::memory_order_acquire) != 0; }
  Gate region_gate(uint32_t key) { return Gate(&gates().regions[RegionSlotOf(key)]); }

  // NotFound: the request has no such item. InvalidArgument: it lies beyond the file.
  absl::Status ReadItem(const Entered& entered, uint32_t item, ItemRecord* record) const;
  absl::Status ReadDescriptors(const ItemRecord& record, std::vector<Descriptor>* descriptors) const;

 private:
  ServerBoard(UniqueFd items, Mapping gates) : items_(std::move(items)), gates_map_(std::move(gates)) {}
  Gates& gates() { return *reinterpret_cast<Gates*>(gates_map_.data()); }

  const UniqueFd items_;
  const Mapping gates_map_;
};

}  // namespace quarry::transport::shm

#endif  // QUARRY_COMMON_TRANSPORT_SHM_BOARD_H_
