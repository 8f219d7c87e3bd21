#include "server/dram/slab_arena.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/checksum.h"

namespace quarry::server {
namespace {

constexpr uint32_t kNoIndex = UINT32_MAX;
constexpr uint64_t kSmallestChosenSlab = 4 << 20;
constexpr uint64_t kLargestChosenSlab = 64 << 20;  // kMaxShardBytes
constexpr uint64_t kChosenSlabs = 64;
constexpr uint32_t kSlabsToLookAt = 64;

constexpr uint64_t HeaderBytes(uint64_t slot_bytes) {
  return sizeof(SlotHeader) + ChunkCount(slot_bytes) * sizeof(uint64_t);
}

uint64_t ChooseSlabBytes(uint64_t arena_bytes) {
  return std::clamp(std::bit_floor(arena_bytes / kChosenSlabs), kSmallestChosenSlab, kLargestChosenSlab);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SlabArena>> SlabArena::Create(const SlabArenaOptions& options) {
  const uint64_t slab_bytes = options.slab_bytes != 0 ? options.slab_bytes : ChooseSlabBytes(options.arena_bytes);
  if (!std::has_single_bit(slab_bytes) || slab_bytes < kMinSlabBytes || slab_bytes > kMaxSlabBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("slab_bytes: ", slab_bytes, " is not a power of two from ", kMinSlabBytes, " to ", kMaxSlabBytes));
  }
  const uint64_t slab_count = options.arena_bytes / slab_bytes;
  if (slab_count == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("arena_bytes: ", options.arena_bytes, " is less than one slab of ", slab_bytes));
  }
  const uint64_t slots = slab_count * (slab_bytes / kSlotAlignment);
  if (slots >= kNoIndex) {
    return absl::InvalidArgumentError(
        absl::StrCat("arena_bytes: ", options.arena_bytes, " is more than ", kNoIndex * kSlotAlignment));
  }
  auto arena = ReservedMemory::Create(slab_count * slab_bytes, ReservedMemory::Pages::kHuge);
  if (!arena.ok()) return arena.status();
  // The smallest slots need the most header bytes of all classes.
  auto headers = ReservedMemory::Create(slots * HeaderBytes(kSlotAlignment), ReservedMemory::Pages::kSmall);
  if (!headers.ok()) return headers.status();
  auto metas = ReservedMemory::Create(slots * sizeof(SlotMeta), ReservedMemory::Pages::kSmall);
  if (!metas.ok()) return metas.status();
  if (options.prefault) {
    if (absl::Status status = arena->Populate(); !status.ok()) return status;
  }
  return std::unique_ptr<SlabArena>(new SlabArena(slab_bytes, static_cast<uint32_t>(slab_count), *std::move(arena),
                                                  *std::move(headers), *std::move(metas)));
}

SlabArena::SlabArena(uint64_t slab_bytes, uint32_t slab_count, ReservedMemory arena, ReservedMemory headers,
                     ReservedMemory metas)
    : slab_bytes_(slab_bytes),
      slot_bits_(std::countr_zero(slab_bytes / kSlotAlignment)),
      slab_header_bytes_(slab_bytes / kSlotAlignment * HeaderBytes(kSlotAlignment)),
      classes_(slab_bytes),
      arena_(std::move(arena)),
      headers_(std::move(headers)),
      metas_(std::move(metas)),
      slabs_(slab_count),
      class_states_(classes_.count()) {
  for (SizeClass& state : class_states_) state.partial_head = kNoIndex;
  for (uint32_t slab = slab_count; slab-- > 0;) free_slabs_.push_back(slab);
}

SlotRef SlabArena::Allocate(int size_class, const SlotUse& use) {
  std::lock_guard<std::mutex> lock(mutex_);
  SizeClass& state = class_states_[size_class];
  if (state.partial_head == kNoIndex) {
    if (free_slabs_.empty()) return SlotRef();
    TakeSlabLocked(size_class);
  }
  const uint32_t id = TakeSlotLocked(state.partial_head);
  SlotMeta& meta = Meta(id);
  meta.owner_or_next = use.owner;
  meta.tenant = use.tenant;
  meta.payload_bytes = use.payload_bytes;
  meta.references.store(1, std::memory_order_relaxed);

  const uint64_t bytes = classes_.slot_bytes(size_class);
  ++state.used_slots;
  used_bytes_ += bytes;
  payload_bytes_ += use.payload_bytes;
  if (tenant_bytes_.size() <= use.tenant) tenant_bytes_.resize(use.tenant + 1);
  tenant_bytes_[use.tenant] += bytes;
  return SlotRef::Adopt(this, id);
}

SlotRef SlabArena::Share(uint32_t id) {
  Meta(id).references.fetch_add(1, std::memory_order_relaxed);
  return SlotRef::Adopt(this, id);
}

void SlabArena::Free(uint32_t id) {
  std::lock_guard<std::mutex> lock(mutex_);
  const uint32_t number = id >> slot_bits_;
  Slab& slab = slabs_[number];
  SizeClass& state = class_states_[slab.size_class];
  SlotMeta& meta = Meta(id);
  --state.used_slots;
  used_bytes_ -= slab.slot_bytes;
  payload_bytes_ -= meta.payload_bytes;
  tenant_bytes_[meta.tenant] -= slab.slot_bytes;

  const bool was_full = slab.used == slab.slots;
  --slab.used;
  if (slab.used == 0) {
    if (!was_full) UnlinkPartialLocked(number);
    slab.last_class = slab.size_class;
    slab.size_class = SizeClasses::kNone;
    --state.slabs;
    free_slabs_.push_back(number);
    return;
  }
  meta.owner_or_next = slab.free_head;
  slab.free_head = id;
  if (was_full) LinkPartialLocked(number);
}

void SlabArena::TakeSlabLocked(int size_class) {
  const uint32_t number = free_slabs_.back();
  free_slabs_.pop_back();
  Slab& slab = slabs_[number];
  if (slab.last_class != SizeClasses::kNone && slab.last_class != size_class) ++slab_moves_;
  slab.size_class = size_class;
  slab.slot_bytes = classes_.slot_bytes(size_class);
  slab.header_bytes = static_cast<uint32_t>(HeaderBytes(slab.slot_bytes));
  slab.slots = static_cast<uint32_t>(slab_bytes_ / slab.slot_bytes);
  slab.used = 0;
  slab.fresh = 0;
  slab.free_head = kNoIndex;
  ++class_states_[size_class].slabs;
  LinkPartialLocked(number);
}

uint32_t SlabArena::TakeSlotLocked(uint32_t number) {
  Slab& slab = slabs_[number];
  uint32_t id;
  if (slab.free_head != kNoIndex) {
    id = slab.free_head;
    slab.free_head = Meta(id).owner_or_next;
  } else {
    id = number << slot_bits_ | slab.fresh++;
  }
  if (++slab.used == slab.slots) UnlinkPartialLocked(number);
  return id;
}

void SlabArena::LinkPartialLocked(uint32_t number) {
  Slab& slab = slabs_[number];
  uint32_t& head = class_states_[slab.size_class].partial_head;
  slab.previous = kNoIndex;
  slab.next = head;
  if (head != kNoIndex) slabs_[head].previous = number;
  head = number;
}

void SlabArena::UnlinkPartialLocked(uint32_t number) {
  Slab& slab = slabs_[number];
  if (slab.previous != kNoIndex) {
    slabs_[slab.previous].next = slab.next;
  } else {
    class_states_[slab.size_class].partial_head = slab.next;
  }
  if (slab.next != kNoIndex) slabs_[slab.next].previous = slab.previous;
}

int64_t SlabArena::PickSlabToMove(int size_class, absl::Span<const uint32_t> except, std::vector<UsedSlot>* used) {
  std::lock_guard<std::mutex> lock(mutex_);
  const uint32_t count = static_cast<uint32_t>(slabs_.size());
  int64_t best = -1;
  for (uint32_t i = 0; i < std::min(count, kSlabsToLookAt); ++i) {
    const uint32_t number = pick_cursor_;
    pick_cursor_ = (pick_cursor_ + 1) % count;
    const Slab& slab = slabs_[number];
    if (slab.size_class == SizeClasses::kNone || slab.size_class == size_class) continue;
    if (std::find(except.begin(), except.end(), number) != except.end()) continue;
    // Compares used/slots without division.
    if (best < 0 || uint64_t{slab.used} * slabs_[best].slots < uint64_t{slabs_[best].used} * slab.slots) best = number;
  }
  used->clear();
  if (best < 0) return best;
  const Slab& slab = slabs_[best];
  for (uint32_t slot = 0; slot < slab.fresh; ++slot) {
    const uint32_t id = static_cast<uint32_t>(best) << slot_bits_ | slot;
    const SlotMeta& meta = Meta(id);
    if (meta.references.load(std::memory_order_acquire) != 0) used->push_back({id, meta.owner_or_next});
  }
  return best;
}

bool SlabArena::OwnsSlabs(int size_class) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return class_states_[size_class].slabs != 0;
}

uint64_t SlabArena::used_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return used_bytes_;
}

SlabArena::Stats SlabArena::stats() const {
  std::lock_guard<std::mutex> lock(mutex_);
  Stats stats;
  stats.used_bytes = used_bytes_;
  stats.payload_bytes = payload_bytes_;
  stats.slab_moves = slab_moves_;
  for (int i = 0; i < classes_.count(); ++i) {
    const SizeClass& state = class_states_[i];
    if (state.slabs == 0) continue;
    const uint64_t slots = state.slabs * (slab_bytes_ / classes_.slot_bytes(i));
    stats.classes.push_back({classes_.slot_bytes(i), state.slabs, state.used_slots, slots - state.used_slots});
    stats.metadata_bytes += slots * sizeof(SlotMeta);
  }
  return stats;
}

std::vector<uint64_t> SlabArena::tenant_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return tenant_bytes_;
}

std::byte* SlabArena::Payload(uint32_t id) const {
  const uint32_t number = id >> slot_bits_;
  const uint32_t slot = id & ((1u << slot_bits_) - 1);
  return arena_.data() + number * slab_bytes_ + slot * slabs_[number].slot_bytes;
}

SlotHeader* SlabArena::Header(uint32_t id) const {
  const uint32_t number = id >> slot_bits_;
  const uint32_t slot = id & ((1u << slot_bits_) - 1);
  return reinterpret_cast<SlotHeader*>(headers_.data() + number * slab_header_bytes_ +
                                       uint64_t{slot} * slabs_[number].header_bytes);
}

SlotRef::SlotRef(const SlotRef& other) : arena_(other.arena_), id_(other.id_) {
  if (arena_ != nullptr) arena_->Meta(id_).references.fetch_add(1, std::memory_order_relaxed);
}

SlotRef::~SlotRef() {
  if (arena_ == nullptr) return;
  if (arena_->Meta(id_).references.fetch_sub(1, std::memory_order_acq_rel) == 1) arena_->Free(id_);
}

std::byte* SlotRef::payload() const { return arena_->Payload(id_); }
size_t SlotRef::capacity() const { return arena_->SlotBytes(id_); }
SlotHeader* SlotRef::header() const { return arena_->Header(id_); }

}  // namespace quarry::server
