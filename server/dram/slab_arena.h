// The payload memory: one arena, cut into slabs, cut into equal slots of one size class.
#ifndef QUARRY_SERVER_DRAM_SLAB_ARENA_H_
#define QUARRY_SERVER_DRAM_SLAB_ARENA_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/dram/reserved_memory.h"
#include "server/dram/size_classes.h"
#include "server/dram/slot.h"

namespace quarry::server {

inline constexpr uint64_t kMinSlabBytes = 64 << 10;
inline constexpr uint64_t kMaxSlabBytes = 1 << 30;

struct SlabArenaOptions {
  uint64_t arena_bytes = 0;  // rounded down to whole slabs
  uint64_t slab_bytes = 0;   // a power of two; 0: chosen from arena_bytes
  bool prefault = true;
};

// What a slot is allocated for; kept beside it for accounting and slab moves.
struct SlotUse {
  uint32_t owner = 0;  // the block
  uint32_t tenant = 0;
  uint32_t payload_bytes = 0;
};

// A slot's number is slab << slot_bits | slot in slab, so it says where the slot is. A
// slab belongs to the class that took it until its last slot is free; then any class may
// take it. Headers lie in an area of their own, so that slots fill a slab exactly.
//
// Thread-safe. One mutex, held for a few instructions.
class SlabArena {
 public:
  // InvalidArgument names the option; ResourceExhausted: no memory.
  static absl::StatusOr<std::unique_ptr<SlabArena>> Create(const SlabArenaOptions& options);
  SlabArena(const SlabArena&) = delete;
  SlabArena& operator=(const SlabArena&) = delete;

  absl::Span<std::byte> memory() const { return {arena_.data(), arena_.bytes()}; }
  const SizeClasses& size_classes() const { return classes_; }
  uint64_t slab_bytes() const { return slab_bytes_; }

  // Empty when the class has no free slot and no slab is free.
  SlotRef Allocate(int size_class, const SlotUse& use);
  // One more reference; the caller knows that there is one.
  SlotRef Share(uint32_t id);

  uint64_t SlotBytes(uint32_t id) const { return slabs_[id >> slot_bits_].slot_bytes; }
  // As its allocation said.
  uint32_t PayloadBytes(uint32_t id) const { return Meta(id).payload_bytes; }
  uint32_t References(uint32_t id) const { return Meta(id).references.load(std::memory_order_acquire); }

  struct UsedSlot {
    uint32_t id;
    uint32_t owner;
  };
  // For moving a slab to `size_class`: the least used slab among a bounded number of other
  // classes' slabs, without those in `except`. Returns its number and lists its slots in
  // use; -1 when there is none.
  int64_t PickSlabToMove(int size_class, absl::Span<const uint32_t> except, std::vector<UsedSlot>* used);
  bool OwnsSlabs(int size_class) const;

  struct ClassStats {
    uint64_t slot_bytes = 0;
    uint64_t slabs = 0;
    uint64_t used_slots = 0;
    uint64_t free_slots = 0;
  };
  struct Stats {
    uint64_t used_bytes = 0;
    uint64_t payload_bytes = 0;
    uint64_t slab_moves = 0;
    uint64_t metadata_bytes = 0;      // beside the slots, without headers
    std::vector<ClassStats> classes;  // only those with slabs
  };
  Stats stats() const;
  uint64_t used_bytes() const;  // whole slots
  // Bytes of slots in use, by tenant index.
  std::vector<uint64_t> tenant_bytes() const;

 private:
  friend class SlotRef;

  struct SlotMeta {
    std::atomic<uint32_t> references;
    uint32_t owner_or_next;  // in use: the owner; free: the next free slot of the slab
    uint32_t tenant;
    uint32_t payload_bytes;
  };
  struct Slab {
    uint64_t slot_bytes = 0;
    uint32_t header_bytes = 0;
    int size_class = SizeClasses::kNone;
    int last_class = SizeClasses::kNone;
    uint32_t slots = 0;
    uint32_t used = 0;
    uint32_t fresh = 0;  // slots from here on were not used since the class took the slab
    uint32_t free_head = 0;
    uint32_t next = 0;  // in the class's list of slabs with free slots
    uint32_t previous = 0;
  };
  struct SizeClass {
    uint32_t partial_head = 0;
    uint64_t slabs = 0;
    uint64_t used_slots = 0;
  };

  SlabArena(uint64_t slab_bytes, uint32_t slab_count, ReservedMemory arena, ReservedMemory headers,
            ReservedMemory metas);

  SlotMeta& Meta(uint32_t id) const { return reinterpret_cast<SlotMeta*>(metas_.data())[id]; }
  std::byte* Payload(uint32_t id) const;
  SlotHeader* Header(uint32_t id) const;
  void Free(uint32_t id);
  void TakeSlabLocked(int size_class);
  uint32_t TakeSlotLocked(uint32_t slab);
  void LinkPartialLocked(uint32_t slab);
  void UnlinkPartialLocked(uint32_t slab);

  const uint64_t slab_bytes_;
  const int slot_bits_;
  const uint64_t slab_header_bytes_;
  const SizeClasses classes_;
  const ReservedMemory arena_;
  const ReservedMemory headers_;
  const ReservedMemory metas_;

  mutable std::mutex mutex_;
  std::vector<Slab> slabs_;
  std::vector<SizeClass> class_states_;
  std::vector<uint32_t> free_slabs_;
  std::vector<uint64_t> tenant_bytes_;
  uint64_t used_bytes_ = 0;
  uint64_t payload_bytes_ = 0;
  uint64_t slab_moves_ = 0;
  uint32_t pick_cursor_ = 0;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_DRAM_SLAB_ARENA_H_
