// The block store: everything a node knows and keeps. Both front ends (server/session,
// server/grpc) call it; it knows neither sockets nor messages.
//
// Thread-safe throughout. Nothing here blocks on anything but short mutexes.
#ifndef QUARRY_SERVER_BLOCK_STORE_H_
#define QUARRY_SERVER_BLOCK_STORE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/match_rule.h"
#include "quarry/block.h"
#include "quarry/model_spec.h"
#include "server/dram/slot.h"
#include "server/event_log.h"
#include "server/leases.h"
#include "server/namespaces.h"
#include "server/ssd/ssd_tier.h"

namespace quarry::server {

struct BlockStoreOptions {
  uint64_t arena_bytes = 0;  // payload memory; the whole is reserved and prefaulted
  uint64_t slab_bytes = 0;   // 0: chosen from arena_bytes
  bool prefault = true;
  uint32_t index_shards = 64;
  uint32_t max_lease_ms = 60'000;
  // Leases (and retained puts) pin at most this share of the arena; a lease that would
  // exceed it covers a shorter prefix.
  double max_leased_share = 0.9;
  uint32_t max_leases = 100'000;
  // Blocks of one lease, and of all: each costs a word in every lease that has it.
  uint32_t max_lease_blocks = 64 << 10;
  uint64_t max_leased_blocks = 4 << 20;
  uint32_t max_ssd_records = 0;      // that the SSD tier may have: they make the index larger
  uint64_t ghost_entries = 1 << 20;  // of the filter that remembers why blocks are gone
  uint32_t events = 16 << 10;        // that the event log keeps
  // The share of blocks from which the hits of other memory sizes are estimated; see
  // server/dram/reuse_distance.h.
  double reuse_sample_rate = 1.0 / 128;
};

// One chain of a match, as asked.
struct ChainQuery {
  uint32_t group = 0;
  uint64_t first_block = 0;
  HashSpan hashes;
};

struct MatchQuery {
  uint64_t local_tokens = 0;
  absl::Span<const ChainQuery> chains;  // at most one per group
  uint32_t lease_ms = 0;                // 0: no lease
  bool touch = true;
  uint64_t max_blocks = UINT64_MAX;  // more of them are not usable
  uint64_t min_blocks = 0;           // fewer of them are not usable
  bool pin = false;                  // sets MatchResult::pins; not with a lease, which does more
  // CacheService's: of the usable blocks, begin to bring these from the SSD into memory.
  absl::Span<const uint32_t> prefetch_shards;
};

class BlockStoreImpl;

// Keeps blocks from being evicted while it lives: for reads that follow a match at once.
class BlockPins {
 public:
  BlockPins() = default;
  BlockPins(BlockPins&& other) noexcept
      : store_(std::exchange(other.store_, nullptr)), blocks_(std::move(other.blocks_)) {}
  BlockPins& operator=(BlockPins&& other) noexcept {
    std::swap(store_, other.store_);
    blocks_.swap(other.blocks_);
    return *this;
  }
  ~BlockPins();

 private:
  friend class BlockStoreImpl;
  BlockPins(BlockStoreImpl* store, std::vector<uint32_t> blocks) : store_(store), blocks_(std::move(blocks)) {}

  BlockStoreImpl* store_ = nullptr;
  std::vector<uint32_t> blocks_;  // numbers of index entries
};

struct ChainMatch {
  std::string states;  // one BlockState a hash
  BlockRange usable;   // indices in the chain
};

struct MatchResult {
  uint64_t usable_tokens = 0;
  std::vector<ChainMatch> chains;
  MissCause first_miss = MissCause::kNone;
  uint32_t first_miss_chain = 0;
  uint64_t first_miss_block = 0;
  std::string lease;      // empty: none
  uint32_t lease_ms = 0;  // granted
  // Which bound left what is there without a lease, and thus not usable.
  LeaseLimit lease_limit = LeaseLimit::kNone;
  BlockPins pins;
};

struct ReadResult {
  SlotRef slot;  // set when it can be read
  // It is on an SSD: Load brings it. Its payload.
  bool on_ssd = false;
  uint32_t payload_bytes = 0;
  MissCause miss = MissCause::kNone;  // neither: why not; kNone: no memory for it just now
};

// Bytes of a payload; the default is all.
struct PayloadPart {
  uint64_t offset = 0;
  uint64_t bytes = 0;  // 0: to the end
  friend bool operator==(const PayloadPart&, const PayloadPart&) = default;
};

// Of a Load: called once for each item, in any order, on any thread, perhaps before Load
// returns. Must not block.
using LoadDone = std::function<void(size_t item, ReadResult result)>;

struct PutOffer {
  uint32_t group = 0;
  uint32_t shard = 0;
  absl::string_view hash;
  absl::string_view parent;  // empty: none or not known
  uint64_t depth = 0;
  uint64_t bytes = 0;
  uint32_t retain_ms = 0;
  bool no_ssd = false;
};

// A slot reserved for one shard. Fill slot().payload() and the header, then Publish.
// Destroying it unpublished gives the memory back and wakes who waits for the shard.
class PutTicket {
 public:
  PutTicket() = default;
  PutTicket(PutTicket&& other) noexcept { Swap(other); }
  PutTicket& operator=(PutTicket&& other) noexcept {
    PutTicket taken(std::move(other));
    Swap(taken);
    return *this;
  }
  ~PutTicket();

  explicit operator bool() const { return store_ != nullptr; }
  const SlotRef& slot() const { return slot_; }
  // Makes the shard visible; the ticket is empty afterwards.
  void Publish();
  // Gives up, and remembers why for whoever asks for the block next.
  void Refuse(RefusalReason reason);

 private:
  friend class BlockStoreImpl;
  void Swap(PutTicket& other) noexcept {
    std::swap(store_, other.store_);
    std::swap(slot_, other.slot_);
    std::swap(block_, other.block_);
    std::swap(shard_, other.shard_);
    std::swap(payload_bytes_, other.payload_bytes_);
    std::swap(retain_ms_, other.retain_ms_);
    std::swap(depth_, other.depth_);
    std::swap(parent_, other.parent_);
  }

  BlockStoreImpl* store_ = nullptr;
  SlotRef slot_;
  uint32_t block_ = 0;  // index entry that holds the reservation
  uint32_t shard_ = 0;
  uint32_t payload_bytes_ = 0;
  uint32_t retain_ms_ = 0;
  // For the event.
  uint64_t depth_ = 0;
  std::string parent_;
};

struct OfferResult {
  PutOutcome outcome = PutOutcome::kUnknown;  // kUnknown: wanted, `ticket` is set
  RefusalReason reason = RefusalReason::kNone;
  PutTicket ticket;
};

// The memory sizes that hits are estimated for, as multiples of the arena.
inline constexpr std::array<double, 4> kEstimatedMemory = {0.5, 1, 2, 4};

// Counters since the start and gauges of now. Read without stopping anything.
struct StoreStats {
  uint64_t arena_bytes = 0;    // in slabs, whether used or not
  uint64_t used_bytes = 0;     // slots in use, whole slots
  uint64_t payload_bytes = 0;  // what is in them
  uint64_t leased_bytes = 0;
  uint64_t blocks = 0;  // entries with at least one shard
  uint64_t complete_blocks = 0;
  uint64_t leases = 0;
  uint64_t leased_blocks = 0;  // each counted in every lease that has it
  // The bounds of these three.
  uint64_t max_leased_bytes = 0;
  uint64_t max_leases = 0;
  uint64_t max_leased_blocks = 0;
  LeaseTable::Counts lease_counts;
  uint64_t lease_limits[kLeaseLimits] = {};  // matches whose lease a bound cut short, by bound
  uint64_t in_flight_puts = 0;
  uint64_t index_bytes = 0;  // memory of the index, all of it
  uint64_t match_hashes = 0;
  uint64_t match_hits = 0;            // hashes that were usable
  uint64_t misses[kMissCauses] = {};  // first misses of matches, and of reads, by cause
  // Hashes of matches that count as uses, and how many of them an LRU cache of each of
  // kEstimatedMemory would have missed.
  uint64_t match_uses = 0;
  std::array<double, kEstimatedMemory.size()> estimated_misses = {};
  uint64_t refusals[kRefusalReasons] = {};
  uint64_t stored_shards = 0;
  uint64_t stored_bytes = 0;
  uint64_t already_there = 0;
  uint64_t evicted_blocks = 0;
  uint64_t evicted_bytes = 0;
  // Of these, those that went so that their slab could be given to another size class.
  uint64_t slab_evicted_blocks = 0;
  uint64_t slab_evicted_bytes = 0;
  uint64_t expired_blocks = 0;  // stored longer ago than their namespace's ttl_ms
  uint64_t corrupt_blocks = 0;  // dropped because what is stored fails its checksum
  uint64_t slab_moves = 0;
  // Of the SSD tier.
  uint64_t ssd_blocks = 0;          // complete, and not wholly in memory
  uint64_t match_ssd_hits = 0;      // of match_hits: those of ssd_blocks
  uint64_t demoted_blocks = 0;      // left memory, and are on an SSD
  uint64_t demoted_bytes = 0;       // their slots
  uint64_t unspilled_blocks = 0;    // of evicted_blocks: those that could have been on an SSD, had it been in time
  uint64_t over_budget_blocks = 0;  // passed over by the spill, to keep within the write budget
  uint64_t loads = 0;               // shards that came from an SSD
  uint64_t loaded_bytes = 0;        // their payload
  uint64_t failed_loads = 0;        // no memory, an error, or not what it should have been
  uint64_t passed_through = 0;      // of loads: those that could not be kept in memory
  uint64_t ready_bytes = 0;         // slots that can be given to others at once
  uint64_t spilling_bytes = 0;      // on their way to an SSD
  struct SizeClass {
    uint64_t slot_bytes = 0;
    uint64_t slabs = 0;
    uint64_t used_slots = 0;
    uint64_t free_slots = 0;
  };
  std::vector<SizeClass> size_classes;  // only those with slabs
  uint64_t free_slabs = 0;              // of no size class
};

// What the store knows of one block.
struct BlockInfo {
  std::string hash;
  uint32_t group = 0;
  BlockState state = BlockState::kAbsent;
  MissCause miss = MissCause::kNone;  // why it is not served
  uint64_t depth = 0;                 // index in its chain, as its first put said
  uint64_t bytes = 0;                 // payload of the shards that are there
  uint32_t shards_there = 0;
  uint32_t leases = 0;  // that hold it now
  uint64_t age_ms = 0;  // since its first shard was stored, within kAgeUnitMs
  bool no_ssd = false;
};

struct BlockPage {
  std::vector<BlockInfo> blocks;
  uint64_t next = 0;  // where the next page begins; BlockStore::kEndOfIndex: that was the last
};

struct PinnedBlocks {
  std::string token;  // empty: none
  uint32_t count = 0;
};

struct NamespaceUse {
  uint64_t blocks = 0;  // with at least one shard
  uint64_t payload_bytes = 0;
};

class BlockStore {
 public:
  static constexpr uint64_t kEndOfIndex = UINT64_MAX;
  static constexpr int64_t kAgeUnitMs = 100;  // of the ages of blocks

  // `clock` outlives the store.
  static absl::StatusOr<std::unique_ptr<BlockStore>> Create(const BlockStoreOptions& options, Clock* clock);
  BlockStore(const BlockStore&) = delete;
  BlockStore& operator=(const BlockStore&) = delete;
  // No ticket and no SlotRef may be left.
  ~BlockStore();

  // Opens the SSD tier and finds what is there; namespaces that were there are opened in
  // `namespaces`, which outlives the store. Before anything else. Errors name the directory.
  absl::Status OpenSsd(const SsdTierOptions& options, NamespaceRegistry* namespaces);
  // nullptr: there is none.
  SsdTier* ssd() const;
  // From now on all that is in memory is written to the SSDs. When SpilledAll it is, as far as
  // they take it.
  void SpillAll();
  bool SpilledAll() const;

  // The arena's memory, for transports that register it.
  absl::Span<std::byte> arena() const;

  // At most one chain a group, hashes as long as the spec says; checked by the caller
  // (server/cache_service.h), which can name the field.
  MatchResult Match(const Namespace& ns, const MatchQuery& query);

  // Reads one shard of each block. Results as many as hashes. A lease is not needed to
  // read; it only keeps the blocks from being evicted.
  void Read(const Namespace& ns, uint32_t group, uint32_t shard, HashSpan hashes, std::vector<ReadResult>* results);

  // Brings one shard of each block into memory, if it is on an SSD; reads it like Read, if
  // it is there already. What comes is kept in memory, where there is room.
  // With a part that is small, no more may be read than the chunks that it touches: the slot holds
  // just these then, and is not kept.
  void Load(const Namespace& ns, uint32_t group, uint32_t shard, HashSpan hashes, LoadDone done,
            const PayloadPart& part = {});

  // One shard. Payload size checked by the caller against the spec.
  OfferResult Offer(const Namespace& ns, const PutOffer& offer);

  // Calls `ended` once, on any thread, when the put of that shard that is under way ends,
  // however it ends. False, and no call, when none is under way.
  bool WaitForPut(const Namespace& ns, uint32_t group, uint32_t shard, absl::string_view hash,
                  std::function<void()> ended);

  // Counts as a use; hashes that are not there are passed over. One group's chain.
  void Touch(const Namespace& ns, uint32_t group, HashSpan hashes);
  // The copy failed its checksum: it goes, and lookups say so.
  void DropCorrupt(const Namespace& ns, uint32_t group, absl::string_view hash);

  // One a hash. Neither leases nor touches nor counts.
  std::vector<BlockInfo> Lookup(const Namespace& ns, uint32_t group, HashSpan hashes) const;
  // How many of them were there; they are gone, leased or not.
  uint32_t Remove(const Namespace& ns, uint32_t group, HashSpan hashes);
  // At most `max_blocks` from `cursor` on (0: the start), of a bounded number of entries
  // looked at: a page may be empty though more follow.
  BlockPage List(const Namespace& ns, uint64_t cursor, uint32_t max_blocks) const;
  // Keeps the complete blocks among them until ReleaseLease(token). ResourceExhausted names
  // the bound on leases that this would exceed; then nothing is pinned.
  absl::StatusOr<PinnedBlocks> Pin(const Namespace& ns, uint32_t group, HashSpan hashes);
  // The namespace gives this index up (see NamespaceRegistry::Flush): its watchers are told,
  // and Tick gives the memory back in turns of a few milliseconds.
  void Clear(uint32_t ns_index);
  // From now on Tick looks for blocks that their namespace's ttl_ms has ended, to give their
  // memory back. Nobody finds them in any case.
  void ExpectExpiry();
  // Under its present index.
  NamespaceUse use(const Namespace& ns) const;
  EventLog& events();

  // Leases of the tenant that owns `ns`; any session of it may name them. NotFound: no
  // such lease, another tenant's or namespace's, or it has ended.
  absl::Status CheckLease(const Namespace& ns, absl::string_view token) const;
  absl::StatusOr<uint32_t> RenewLease(absl::string_view tenant, absl::string_view token, uint32_t lease_ms);
  absl::Status ReleaseLease(absl::string_view tenant, absl::string_view token);

  // From now on every offer is refused with kDraining.
  void Drain();
  // Ends leases whose time is over, sweeps what was cleared and tells watchers. Called every
  // few tens of milliseconds.
  void Tick();

  // What matches leave to be done after their answer. Bounded; not calling it slows later
  // matches down, now and then.
  void Upkeep();

  StoreStats stats() const;
  // Bytes of slots in use per tenant.
  std::vector<std::pair<std::string, uint64_t>> tenant_bytes() const;

 private:
  explicit BlockStore(std::unique_ptr<BlockStoreImpl> impl);
  std::unique_ptr<BlockStoreImpl> impl_;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_BLOCK_STORE_H_
