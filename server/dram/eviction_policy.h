// Which block goes next.
#ifndef QUARRY_SERVER_DRAM_EVICTION_POLICY_H_
#define QUARRY_SERVER_DRAM_EVICTION_POLICY_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "server/dram/block_entry.h"

namespace quarry::server {

// Thread-safe, with a mutex of its own that may be taken while an index shard's is held.
//
// Blocks are numbers of index entries. A number whose entry was freed and given to another
// block in between may be passed to any call: the policy then speaks of the wrong block's
// age, and nothing worse happens.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  // One use of all these blocks together, root first.
  virtual void Touch(absl::Span<const uint32_t> chain) = 0;
  // A block that is put: new, or there already, which counts as a use. `depth` orders the
  // blocks of a chain, roots smallest. `parent`: kNoBlock when not there or not known.
  virtual void Insert(uint32_t block, uint32_t depth, uint32_t parent) = 0;

  // A block whose payload is in memory again: a use, unless it is known as used already.
  virtual void Admit(uint32_t block) = 0;
  // Of a block that was never inserted here: what Insert would have said.
  virtual void SetDepth(uint32_t block, uint32_t depth) = 0;

  // Takes out the next block to evict; kNoBlock: none is left. The caller evicts it and
  // says Forget, or keeps it and later says Return or Defer.
  virtual uint32_t Pop() = 0;
  // Forgets a popped block. False, and nothing happens, when it was used since it was popped.
  virtual bool ForgetPopped(uint32_t block) = 0;
  // Popped blocks that could not be evicted then and can be now: back to where they were.
  virtual void Return(absl::Span<const uint32_t> blocks) = 0;
  // A popped block that is being read just now: that is a use.
  virtual void Defer(uint32_t block) = 0;
  // Whatever it was, the block is gone.
  virtual void Forget(uint32_t block) = 0;

  // As the block's first Insert said.
  virtual uint32_t DepthOf(uint32_t block) const = 0;

  // Does what touches have left to be done: for when nobody waits for an answer. If it does
  // not come for long, a touch does it.
  virtual void Upkeep() = 0;

  // Blocks that Pop can give.
  virtual uint64_t size() const = 0;
  virtual uint64_t memory_bytes() const = 0;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_DRAM_EVICTION_POLICY_H_
