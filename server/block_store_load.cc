// Reading blocks from SSDs into memory.
#include <utility>

#include "common/checksum.h"
#include "server/block_store_impl.h"

namespace quarry::server {
namespace {

// A load waits so long for blocks to get to an SSD rather than be lost for it.
constexpr int64_t kLongestWaitForRoomNs = 1'000 * kNsPerMs;

// Reading chunks by themselves pays when they are few: what else would come along stays in
// memory, for the gets of other parts that commonly follow.
constexpr uint64_t kWholeUnlessOneIn = 4;

uint64_t LoadKey(uint32_t block, uint32_t shard) { return uint64_t{block} << 32 | shard; }

// The chunks that the part touches, or all.
ChunkRange ChunksWorthReading(const PayloadPart& part, const RecordTable::Record& record) {
  const uint64_t payload_bytes = record.payload_bytes;
  if (record.place.inlined != 0 || part.offset >= payload_bytes || part.bytes > payload_bytes - part.offset) return {};
  const uint64_t bytes = part.bytes != 0 ? part.bytes : payload_bytes - part.offset;
  const ChunkRange touched{part.offset / kChunkBytes, (part.offset + bytes - 1) / kChunkBytes + 1};
  return (touched.end - touched.first) * kChunkBytes * kWholeUnlessOneIn <= payload_bytes ? touched : ChunkRange();
}

}  // namespace

void BlockStoreImpl::Load(const Namespace& ns, uint32_t group, uint32_t shard, HashSpan hashes, LoadDone done,
                          const PayloadPart& part) {
  BlockBatch batch(index_.get(), static_cast<uint16_t>(ns.index));
  batch.Add(static_cast<uint8_t>(group), hashes);
  const auto shared_done = std::make_shared<const LoadDone>(std::move(done));
  const Lifetime lifetime = LifetimeOf(ns);
  std::vector<std::pair<size_t, ReadResult>> known;
  std::vector<Loading> started;
  index_->Visit(&batch, [&](uint32_t item, uint32_t block) {
    ReadResult result;
    if (block == kNoBlock || IsOverLocked(block, lifetime)) {
      result.miss = block == kNoBlock ? ghosts_.Recall(batch.hash(item)) : MissCause::kExpired;
      known.emplace_back(item, std::move(result));
      return;
    }
    BlockEntry& entry = index_->entry(block);
    const uint32_t slot = entry.slots()[shard];
    const uint32_t record = index_->records(block)[shard];
    if (slot < kReservedSlot) {
      result.slot = arena_->Share(slot);
      known.emplace_back(item, std::move(result));
    } else if (record == kNoRecord) {
      result.miss = slot == kReservedSlot ? MissCause::kInFlight : MissCause::kIncomplete;
      known.emplace_back(item, std::move(result));
    } else {
      const RecordTable::Record& stored = ssd_->records().At(record);
      auto& loads = loads_[index_->ShardOfBlock(block)];
      const ChunkRange chunks = ChunksWorthReading(part, stored);
      const bool is_part = chunks.end != SIZE_MAX && !loads.contains(LoadKey(block, shard));
      if (!is_part) {
        std::vector<LoadCall>& calls = loads[LoadKey(block, shard)];
        calls.push_back({shared_done, item});
        if (calls.size() != 1) return;
      }
      ++entry.pins;
      ssd_->BeginRead(stored.place);
      Loading& loading = started.emplace_back();
      loading.read = {stored.place,
                      ns.id,
                      static_cast<uint8_t>(group),
                      static_cast<uint16_t>(shard),
                      std::string(hashes[item]),
                      stored.payload_bytes,
                      is_part ? chunks : ChunkRange(),
                      SlotRef(),
                      false,
                      [this, block, shard](SsdRead::Outcome outcome, SlotRef read, bool is_lent) {
                        OnLoaded(block, shard, !is_lent, outcome, std::move(read));
                      }};
      if (is_part) {
        loading.read.done = [this, block, shard, call = LoadCall{shared_done, item}](auto outcome, SlotRef read, bool) {
          OnPartLoaded(block, shard, call, outcome, std::move(read));
        };
      }
      loading.size_class = arena_->size_classes().ClassOf(stored.payload_bytes);
      loading.use = {block, ns.tenant_index, stored.payload_bytes};
    }
  });
  for (auto& [item, result] : known) {
    if (!result.slot) CountMiss(result.miss);
    (*shared_done)(item, std::move(result));
  }
  StartLoads(std::move(started));
}

void BlockStoreImpl::StartLoads(std::vector<Loading> loads) {
  std::vector<SsdRead> reads;
  for (Loading& loading : loads) {
    loading.since_ns = clock_->NowNs();
    loading.read.to = RoomForLoad(loading.size_class, loading.use, &loading.read.is_lent);
    if (loading.read.to) {
      reads.push_back(std::move(loading.read));
      continue;
    }
    std::lock_guard<std::mutex> lock(ready_mutex_);
    waiting_bytes_ += arena_->size_classes().slot_bytes(loading.size_class);
    waiting_loads_.push_back(std::move(loading));
  }
  if (!reads.empty()) ssd_->Read(std::move(reads));
}

void BlockStoreImpl::ServeWaitingLoads() {
  std::vector<SsdRead> reads;
  while (true) {
    Loading loading;
    {
      std::lock_guard<std::mutex> lock(ready_mutex_);
      if (waiting_loads_.empty()) break;
      loading = std::move(waiting_loads_.front());
      waiting_loads_.pop_front();
    }
    const uint64_t bytes = arena_->size_classes().slot_bytes(loading.size_class);
    loading.read.to = RoomForLoad(loading.size_class, loading.use, &loading.read.is_lent);
    const bool waited = clock_->NowNs() - loading.since_ns >= kLongestWaitForRoomNs || !ssd_->CanWrite();
    if (!loading.read.to && waited) {
      loading.read.is_lent = false;
      loading.read.to = MakeRoom(loading.size_class, loading.use);
    }
    if (!loading.read.to && !waited) {
      std::lock_guard<std::mutex> lock(ready_mutex_);
      waiting_loads_.push_front(std::move(loading));
      break;
    }
    {
      std::lock_guard<std::mutex> lock(ready_mutex_);
      waiting_bytes_ -= bytes;
    }
    if (loading.read.to) {
      reads.push_back(std::move(loading.read));
    } else {
      ssd_->EndRead(loading.read.place);
      loading.read.done(SsdRead::Outcome::kNoMemory, SlotRef(), false);
    }
  }
  if (!reads.empty()) ssd_->Read(std::move(reads));
}

std::vector<BlockStoreImpl::LoadCall> BlockStoreImpl::TakeLoadsLocked(uint32_t block, uint32_t shard) {
  auto& loads = loads_[index_->ShardOfBlock(block)];
  auto node = loads.extract(LoadKey(block, shard));
  return std::move(node.mapped());
}

void BlockStoreImpl::OnLoaded(uint32_t block, uint32_t shard, bool keep, SsdRead::Outcome outcome, SlotRef slot) {
  const bool good = outcome == SsdRead::Outcome::kGood;
  Leftovers leftovers;
  Blocks returned;
  std::vector<LoadCall> calls;
  ReadResult result;
  bool kept = false;
  {
    std::lock_guard<std::mutex> lock(MutexOf(block));
    BlockEntry& entry = index_->entry(block);
    calls = TakeLoadsLocked(block, shard);
    uint32_t& own = entry.slots()[shard];
    const uint32_t record = index_->records(block)[shard];
    if (good) {
      result.slot = slot;
      kept = keep && entry.removed == 0 && own == kNoSlot && record != kNoRecord;
      if (kept) {
        own = slot.Release();
        entry.used = 1;
        ssd_->records().At(record).used_at = UseTimeNow(*clock_);
        if (StateLocked(block) == BlockState::kDram) ssd_blocks_.fetch_sub(1, std::memory_order_relaxed);
        if (entry.leases != 0) {
          leased_bytes_.fetch_add(static_cast<int64_t>(arena_->SlotBytes(own)), std::memory_order_relaxed);
        }
      }
    } else {
      result.miss = CauseOfFailedLoadLocked(block, shard, outcome, &leftovers);
    }
    // The pin goes only after the policy knows the block, below.
  }
  if (kept) policy_->Admit(block);
  {
    std::lock_guard<std::mutex> lock(MutexOf(block));
    UnpinLocked(block, &returned);
  }
  policy_->Return(returned);
  Drop(&leftovers);
  CountLoad(result);
  if (good && !kept) passed_through_.fetch_add(1, std::memory_order_relaxed);
  for (const LoadCall& call : calls) {
    if (result.miss != MissCause::kNone) CountMiss(result.miss);
    (*call.done)(call.item, result);
  }
}

void BlockStoreImpl::OnPartLoaded(uint32_t block, uint32_t shard, const LoadCall& call, SsdRead::Outcome outcome,
                                  SlotRef slot) {
  Leftovers leftovers;
  Blocks returned;
  ReadResult result;
  {
    std::lock_guard<std::mutex> lock(MutexOf(block));
    if (outcome == SsdRead::Outcome::kGood) {
      result.slot = std::move(slot);
      const uint32_t record = index_->records(block)[shard];
      if (index_->entry(block).removed == 0 && record != kNoRecord) {
        ssd_->records().At(record).used_at = UseTimeNow(*clock_);
      }
    } else {
      result.miss = CauseOfFailedLoadLocked(block, shard, outcome, &leftovers);
    }
    UnpinLocked(block, &returned);
  }
  policy_->Return(returned);
  Drop(&leftovers);
  CountLoad(result);
  passed_through_.fetch_add(result.slot ? 1 : 0, std::memory_order_relaxed);
  if (result.miss != MissCause::kNone) CountMiss(result.miss);
  (*call.done)(call.item, std::move(result));
}

// A disk that fails is lost with what it holds; bytes that are not what they were are said to be so.
MissCause BlockStoreImpl::CauseOfFailedLoadLocked(uint32_t block, uint32_t shard, SsdRead::Outcome outcome,
                                                  Leftovers* leftovers) {
  if (outcome == SsdRead::Outcome::kNoMemory) return MissCause::kNone;
  const bool is_corrupt = outcome == SsdRead::Outcome::kCorrupt;
  const MissCause cause = is_corrupt ? MissCause::kCorrupt : MissCause::kNodeLost;
  if (is_corrupt) corrupt_blocks_.fetch_add(1, std::memory_order_relaxed);
  if (index_->entry(block).removed == 0 && index_->records(block)[shard] != kNoRecord) {
    LoseRecordLocked(block, shard, cause, leftovers);
  }
  return cause;
}

void BlockStoreImpl::CountLoad(const ReadResult& result) {
  if (!result.slot) {
    loads_failed_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  loads_good_.fetch_add(1, std::memory_order_relaxed);
  loaded_bytes_.fetch_add(result.slot.header()->payload_bytes, std::memory_order_relaxed);
}

// ------------------------------------------------------------ the public class

void BlockStore::Load(const Namespace& ns, uint32_t group, uint32_t shard, HashSpan hashes, LoadDone done,
                      const PayloadPart& part) {
  impl_->Load(ns, group, shard, hashes, std::move(done), part);
}

}  // namespace quarry::server
