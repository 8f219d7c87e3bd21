// A slot of the arena and the reference that keeps it from being reused.
#ifndef QUARRY_SERVER_DRAM_SLOT_H_
#define QUARRY_SERVER_DRAM_SLOT_H_

#include <cstddef>
#include <cstdint>
#include <utility>

namespace quarry::server {

class SlabArena;

// Lies beside the slot, in the slab's header area: the sums travel with the payload.
// Written by whoever fills the slot, before it is published; constant afterwards.
struct SlotHeader {
  uint64_t root;
  uint64_t payload_bytes;
  uint64_t sums[];  // ChunkCount(slot bytes) of them
};

// A counted reference to a slot; the last one to go returns the slot to its slab.
// Copies may be used from different threads; one object from one thread at a time.
class SlotRef {
 public:
  SlotRef() = default;
  SlotRef(const SlotRef& other);
  SlotRef(SlotRef&& other) noexcept : arena_(std::exchange(other.arena_, nullptr)), id_(std::exchange(other.id_, 0)) {}
  SlotRef& operator=(SlotRef other) noexcept {
    std::swap(arena_, other.arena_);
    std::swap(id_, other.id_);
    return *this;
  }
  ~SlotRef();

  explicit operator bool() const { return arena_ != nullptr; }
  std::byte* payload() const;  // 4 KiB-aligned
  size_t capacity() const;     // bytes
  SlotHeader* header() const;
  uint32_t id() const { return id_; }

  // Adopts a reference that is already counted; Release is the inverse. For the index,
  // which keeps a slot as a 32-bit id.
  static SlotRef Adopt(SlabArena* arena, uint32_t id) { return SlotRef(arena, id); }
  uint32_t Release() {
    arena_ = nullptr;
    return std::exchange(id_, 0);
  }

 private:
  SlotRef(SlabArena* arena, uint32_t id) : arena_(arena), id_(id) {}

  SlabArena* arena_ = nullptr;
  uint32_t id_ = 0;  // the arena's number of it; see slab_arena.h
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_DRAM_SLOT_H_
