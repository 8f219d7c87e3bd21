// The block store's parts and how they work together. Private to server/block_store*.cc:
//   block_store.cc        the public class, reads, touches, leases, statistics
//   block_store_match.cc  matches
//   block_store_put.cc    offers and tickets; what tenants have in memory
//   block_store_evict.cc  making room, removing blocks
//   block_store_blocks.cc lookups, removal, listing, pins, sweeping
//   block_store_expiry.cc blocks whose namespace has a time to live
//   block_store_load.cc   reading blocks from the SSDs
//   block_store_ssd.cc    what the SSD tier asks, and has at the start
//   block_store_spill.cc  writing cold blocks ahead of their eviction
#ifndef QUARRY_SERVER_BLOCK_STORE_IMPL_H_
#define QUARRY_SERVER_BLOCK_STORE_IMPL_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "server/block_store.h"
#include "server/dram/block_index.h"
#include "server/dram/eviction_policy.h"
#include "server/dram/ghost_filter.h"
#include "server/dram/reuse_distance.h"
#include "server/dram/slab_arena.h"
#include "server/leases.h"
#include "server/ssd/ssd_tier.h"
#include "server/ssd/use_time.h"
#include "server/ssd/write_budget.h"

namespace quarry::server {

// Locks: an index shard's mutex first; under it those of policy, arena, ghost filter, event
// log, lease table and reuse distance, never two of them at once. Slots are dropped, and
// callers called back, without locks.
class BlockStoreImpl : public SsdOwner {
 public:
  static absl::StatusOr<std::unique_ptr<BlockStoreImpl>> Create(const BlockStoreOptions& options, Clock* clock);
  ~BlockStoreImpl() override;

  absl::Span<std::byte> arena() const { return arena_->memory(); }
  MatchResult Match(const Namespace& ns, const MatchQuery& query);
  void Read(const Namespace& ns, uint32_t group, uint32_t shard, HashSpan hashes, std::vector<ReadResult>* results);
  void Load(const Namespace& ns, uint32_t group, uint32_t shard, HashSpan hashes, LoadDone done,
            const PayloadPart& part);
  OfferResult Offer(const Namespace& ns, const PutOffer& offer);
  void Publish(PutTicket* ticket);
  // kNone: the ticket is dropped without a word.
  void Abandon(PutTicket* ticket, RefusalReason reason);
  bool WaitForPut(const Namespace& ns, uint32_t group, uint32_t shard, absl::string_view hash,
                  std::function<void()> ended);
  void Touch(const Namespace& ns, uint32_t group, HashSpan hashes);
  void DropCorrupt(const Namespace& ns, uint32_t group, absl::string_view hash);
  void UnpinAll(const std::vector<uint32_t>& blocks);
  absl::Status CheckLease(const Namespace& ns, absl::string_view token) const;
  absl::StatusOr<uint32_t> RenewLease(absl::string_view tenant, absl::string_view token, uint32_t lease_ms);
  absl::Status ReleaseLease(absl::string_view tenant, absl::string_view token);
  void Drain() { draining_.store(true, std::memory_order_release); }
  std::vector<BlockInfo> Lookup(const Namespace& ns, uint32_t group, HashSpan hashes);
  uint32_t Remove(const Namespace& ns, uint32_t group, HashSpan hashes);
  BlockPage List(const Namespace& ns, uint64_t cursor, uint32_t max_blocks);
  absl::StatusOr<PinnedBlocks> Pin(const Namespace& ns, uint32_t group, HashSpan hashes);
  void Clear(uint32_t ns_index);
  NamespaceUse use(const Namespace& ns) const;
  absl::Status OpenSsd(const SsdTierOptions& options, NamespaceRegistry* namespaces);
  SsdTier* ssd() { return ssd_.get(); }
  void SpillAll();
  bool SpilledAll() const;

  bool OnWritten(const SpillItem& item, uint32_t record) override;
  void OnWriteFailed(const SpillItem& item, bool disk_failed) override;
  Fate OnReclaim(const ShardKey& key, const RecordPlace& place, UseTime used_since) override;
  bool OnMoved(const ShardKey& key, const RecordPlace& from, const RecordPlace& to) override;
  void OnLost(const ShardKey& key, const RecordPlace& place) override;

  void ExpectExpiry() { expiry_.store(true, std::memory_order_relaxed); }
  EventLog& events() { return events_; }
  void Tick();
  void Upkeep() { policy_->Upkeep(); }
  StoreStats stats() const;
  std::vector<std::pair<std::string, uint64_t>> tenant_bytes() const;

 private:
  using Counter = std::atomic<uint64_t>;
  using Blocks = std::vector<uint32_t>;
  // What cannot happen under a lock.
  struct Leftovers {
    std::vector<SlotRef> slots;
    std::vector<std::function<void()>> calls;
  };
  struct Matching;  // one Match under way
  // Who waits for a read of the SSD tier: LoadDone, and the item it is called with.
  struct LoadCall {
    std::shared_ptr<const LoadDone> done;
    size_t item;
  };
  struct Ready {
    uint32_t block;
    uint64_t bytes;  // of its slots
  };
  // How long a namespace's blocks are found, and what time it is, in units of kAgeUnitMs.
  struct Lifetime {
    uint64_t units = UINT64_MAX;  // UINT64_MAX: for ever
    uint32_t now = 0;
  };

  BlockStoreImpl(const BlockStoreOptions& options, Clock* clock, std::unique_ptr<SlabArena> arena,
                 std::unique_ptr<BlockIndex> index);

  static BlockKey KeyOf(const Namespace& ns, uint32_t group, absl::string_view hash) {
    return {static_cast<uint16_t>(ns.index), static_cast<uint8_t>(group), hash};
  }
  std::mutex& MutexOf(uint32_t block) const { return index_->mutex(index_->ShardOfBlock(block)); }
  uint32_t FindBlock(const BlockKey& key) const;
  int64_t ExpiryNs(uint32_t lease_ms) const;

  struct Use {
    Counter blocks{0}, payload_bytes{0};
    std::atomic<const Namespace*> ns{nullptr};  // whose blocks they are; set by the first offer
  };

  // ---- block_store.cc. The shard's mutex is held in all that are called ...Locked.
  BlockState StateLocked(uint32_t block) const;
  static bool IsComplete(BlockState state) { return state == BlockState::kDram || state == BlockState::kSsd; }
  // Shards that are there, on whatever tier.
  uint32_t ShardsLocked(uint32_t block) const;
  static MissCause CauseOf(BlockState state);
  uint64_t SlotBytesLocked(const BlockEntry& entry) const;
  uint64_t PayloadBytesLocked(uint32_t block) const;
  void EndExpiredLeases();
  // Finishes what waited for the last pin or lease; blocks that go back to the policy are
  // appended to `returned`.
  void UnpinnedLocked(uint32_t block, Blocks* returned);
  void UnpinLocked(uint32_t block, Blocks* returned);
  void UnleaseLocked(uint32_t block, Blocks* returned);
  // visit(block) with the mutex of its shard held. In turns of the shard as BlockIndex::Visit
  // found them, each mutex is taken once.
  template <typename Visitor>
  void VisitBlocks(const Blocks& blocks, Visitor&& visit);
  void UnleaseAll(const Blocks& blocks);
  void CountMiss(MissCause cause) { misses_[static_cast<int>(cause)].fetch_add(1, std::memory_order_relaxed); }

  // ---- block_store_match.cc
  void FindBlocks(const Namespace& ns, Matching* matching);
  void CountUses(const Matching& matching);
  void CountSsdHits(const Matching& matching);
  void FindFirstMiss(Matching* matching);
  void Bound(Matching* matching);
  void ReserveLease(Matching* matching);
  void TouchUsable(const Matching& matching);
  void LetGoOfUnusable(Matching* matching);

  // ---- block_store_put.cc
  OfferResult Refused(RefusalReason reason, uint64_t hash);
  void CompletedLocked(uint32_t block, const PutTicket& ticket);
  // Ends the put of a shard that is not published.
  void WithdrawLocked(uint32_t block, uint32_t shard, Leftovers* leftovers, Blocks* returned);
  void TakeWaitersLocked(uint32_t block, uint32_t shard, Leftovers* leftovers);
  bool RetainLocked(BlockEntry& entry);
  void NameTenant(const Namespace& ns);

  // ---- block_store_evict.cc
  // A slot for the block's shard, evicting as needed; empty: no room.
  SlotRef MakeRoom(int size_class, const SlotUse& use);
  SlotRef MoveAndAllocate(int size_class, const SlotUse& use);
  enum class Eviction { kEvicted, kKept, kNothingLeft };
  // The coldest. `only_what_is_on_ssd`: nothing that would be lost, unless it cannot be kept.
  Eviction EvictNext(bool only_what_is_on_ssd, Leftovers* leftovers);
  // What is free is kept for what comes from the SSDs.
  bool OnlyLoadReserveIsLeft() const;
  // Like MakeRoom, but nothing is lost for it; empty: there is none just now. `from_reserve`: the
  // slot is to be free again soon, so that the next load finds one.
  SlotRef RoomForLoad(int size_class, const SlotUse& use, bool* from_reserve);
  bool MoveSlab(int size_class);
  bool CanEvictAll(absl::Span<const SlabArena::UsedSlot> slots) const;
  // Whether the slot is one of the entry's.
  static bool OwnsLocked(const BlockEntry& entry, uint32_t slot);
  // Whether anyone reads it just now.
  bool IsInUseLocked(const BlockEntry& entry) const;
  // Whether someone holds it in memory: pins do, leases only what is nowhere else.
  bool IsHeldLocked(uint32_t block) const;
  static void Drop(Leftovers* leftovers);
  // Nobody holds it in memory: it leaves it for the SSD alone, or else is removed.
  void EvictLocked(uint32_t block, Leftovers* leftovers);
  // Takes the block out of the index. Its slots go to `leftovers`.
  void RemoveLocked(uint32_t block, MissCause cause, Leftovers* leftovers);
  // Nothing refers to the entry any more.
  void FreeLocked(uint32_t block);

  // ---- block_store_expiry.cc
  uint32_t NowInAgeUnits() const;
  Lifetime LifetimeOf(const Namespace& ns) const;
  static Lifetime LifetimeAt(const Namespace& ns, uint32_t now);
  bool IsOverLocked(uint32_t block, const Lifetime& lifetime) const;
  // Removes the block if its time is over and nobody holds it; whether it did.
  bool ExpireLocked(uint32_t block, const Lifetime& lifetime, Leftovers* leftovers);

  // ---- block_store_load.cc
  // A shard that one Load brings, and others may wait for.
  struct Loading {
    SsdRead read;
    int size_class = 0;
    SlotUse use;
    int64_t since_ns = 0;
  };
  // Starts the reads; where there is no room, they wait for what is being written to the SSDs.
  void StartLoads(std::vector<Loading> loads);
  void ServeWaitingLoads();
  // `keep`: in memory, if the block is still wanted.
  void OnLoaded(uint32_t block, uint32_t shard, bool keep, SsdRead::Outcome outcome, SlotRef slot);
  // Of a read of chunks: the slot is the caller's alone.
  void OnPartLoaded(uint32_t block, uint32_t shard, const LoadCall& call, SsdRead::Outcome outcome, SlotRef slot);
  std::vector<LoadCall> TakeLoadsLocked(uint32_t block, uint32_t shard);
  // What a load that brought nothing says; a record that is no good goes.
  MissCause CauseOfFailedLoadLocked(uint32_t block, uint32_t shard, SsdRead::Outcome outcome, Leftovers* leftovers);
  void CountLoad(const ReadResult& result);

  // ---- block_store_ssd.cc
  bool RestoreRecord(uint16_t ns_index, const CatalogRecord& record, const RecordPlace& place);
  // The record of a shard that lies at that place; nullptr: nobody asks for it any more.
  uint32_t* FindRecordLocked(const ShardKey& key, const RecordPlace& place, uint32_t* block);
  // The record is no good: it goes, and with it the block, unless that shard is in memory.
  void LoseRecordLocked(uint32_t block, uint32_t shard, MissCause cause, Leftovers* leftovers);
  void DropRecordsLocked(uint32_t block);
  void UseRecordsLocked(uint32_t block);
  bool IsOnSsdLocked(uint32_t block) const;

  // ---- block_store_spill.cc
  void SpillLoop();
  // How much more should be free, or ready to be given away.
  uint64_t MissingBytes() const;
  std::vector<SpillItem> NextSpill(uint64_t wanted_bytes, bool* nothing_left);
  // What became of a block that the policy gave.
  enum class Popped { kSpill, kReady, kPassedOver };
  Popped GatherLocked(uint32_t block, WriteBudget::Admits admits, std::vector<SpillItem>* items);
  // `turn`: lower ones go first.
  void PushReady(uint64_t turn, uint32_t block, uint64_t bytes);
  uint32_t PopReady();
  int64_t WallMs(uint32_t stored_at) const;

  // ---- block_store_blocks.cc
  template <typename Visitor>
  uint64_t VisitEntries(uint64_t cursor, uint32_t max_entries, Visitor&& visit);
  void DescribeLocked(uint32_t block, uint32_t tokens_per_block, BlockInfo* info) const;
  bool BeginSweep();
  void Sweep();

  const BlockStoreOptions options_;
  Clock* const clock_;
  const int64_t start_ns_;
  const int64_t max_leased_bytes_;
  uint64_t load_reserve_bytes_ = 0;  // of the arena; set before anything else is done
  const std::unique_ptr<SlabArena> arena_;
  const std::unique_ptr<BlockIndex> index_;
  const std::unique_ptr<EvictionPolicy> policy_;
  GhostFilter ghosts_;
  EventLog events_;
  ReuseDistance reuse_;
  LeaseTable leases_;

  // Callbacks of WaitForPut by block << 32 | shard; each map under its index shard's mutex.
  std::vector<std::unordered_multimap<uint64_t, std::function<void()>>> waiters_;

  // Reads of the SSD tier that are under way, by block << 32 | shard; as waiters_.
  std::vector<std::unordered_map<uint64_t, std::vector<LoadCall>>> loads_;

  const std::unique_ptr<Use[]> uses_;  // by namespace index

  // Blocks that the policy gave and that can go at once: they are on an SSD, or cannot be.
  mutable std::mutex ready_mutex_;
  absl::btree_map<uint64_t, Ready> ready_;   // guarded by ready_mutex_; by turn, coldest first
  uint64_t next_turn_ = 0;                   // the spiller's
  uint64_t ready_bytes_ = 0;                 // guarded by ready_mutex_
  std::deque<Loading> waiting_loads_;        // for room; guarded by ready_mutex_
  uint64_t waiting_bytes_ = 0;               // of them; guarded by ready_mutex_
  std::unique_ptr<WriteBudget> budget_;      // the spiller's
  uint64_t spent_on_moves_ = 0;              // the spiller's: bytes that reclaim had moved as of the last look
  std::atomic<uint64_t> spilling_bytes_{0};  // of blocks on their way to an SSD
  std::atomic<bool> spill_all_{false};
  std::atomic<bool> spilled_all_{false};
  std::atomic<bool> spill_stopping_{false};

  std::mutex sweep_mutex_;
  uint64_t sweep_cursor_ = BlockStore::kEndOfIndex;
  bool sweep_again_ = false;  // something was cleared since the cursor was at the start
  uint32_t last_sweep_ = 0;   // when it began, in units of kAgeUnitMs

  mutable std::mutex tenants_mutex_;
  std::vector<std::string> tenants_;  // names by index

  std::atomic<bool> draining_{false};
  std::atomic<bool> expiry_{false};  // some namespace has a time to live
  std::atomic<int64_t> leased_bytes_{0};
  Counter blocks_{0}, complete_blocks_{0}, in_flight_puts_{0};
  Counter match_hashes_{0}, match_hits_{0};
  std::array<Counter, kMissCauses> misses_{};
  std::array<Counter, kRefusalReasons> refusals_{};
  Counter stored_shards_{0}, stored_bytes_{0}, already_there_{0}, evicted_blocks_{0}, evicted_bytes_{0};
  Counter slab_evicted_blocks_{0}, slab_evicted_bytes_{0}, expired_blocks_{0}, corrupt_blocks_{0};
  std::array<Counter, kLeaseLimits> lease_limits_{};
  Counter ssd_blocks_{0}, match_ssd_hits_{0}, demoted_blocks_{0}, demoted_bytes_{0}, unspilled_blocks_{0},
      over_budget_blocks_{0};
  Counter loads_good_{0}, loaded_bytes_{0}, loads_failed_{0}, passed_through_{0};

  // Last: it calls the rest until it is gone.
  std::unique_ptr<SsdTier> ssd_;  // nullptr: there is none
  std::thread spiller_;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_BLOCK_STORE_IMPL_H_
