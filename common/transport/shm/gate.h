// One word that both ends see: whether the server may use something of the client's now,
// and how many of its threads are at it. It is what lets a client take its buffers back
// without asking, and tells `released` from `held`.
#ifndef QUARRY_COMMON_TRANSPORT_SHM_GATE_H_
#define QUARRY_COMMON_TRANSPORT_SHM_GATE_H_

#include <atomic>
#include <cstdint>

namespace quarry::transport::shm {

// | 32 bits: generation | withdrawn | open | 30 bits: uses |. Lies in the client's memory: the
// server takes what it reads there for a hint that can harm nobody but the client.
class Gate {
 public:
  using Word = std::atomic<uint64_t>;
  static_assert(Word::is_always_lock_free);

  explicit Gate(Word* word) : word_(word) {}

  // The client's side.
  bool free() const { return word_->load(std::memory_order_acquire) == 0; }
  // What was stored before is seen by whoever enters.
  void Open(uint32_t generation) { word_->store(uint64_t{generation} << 32 | kOpen, std::memory_order_release); }
  // Nobody enters any more. True: nobody is in.
  bool Withdraw() { return (word_->fetch_or(kWithdrawn, std::memory_order_acq_rel) & kUses) == 0; }
  bool used() const { return (word_->load(std::memory_order_acquire) & kUses) != 0; }
  void Free() { word_->store(0, std::memory_order_release); }

  // The server's side.
  bool Enter(uint32_t generation) {
    uint64_t word = word_->load(std::memory_order_acquire);
    // Bounded, because a hostile client could change the word for ever.
    for (int i = 0; i < kMostTries; ++i) {
      if (word >> 32 != generation || (word & kOpen) == 0 || (word & kWithdrawn) != 0 || (word & kUses) == kUses) {
        return false;
      }
      if (word_->compare_exchange_weak(word, word + 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
        return true;
      }
    }
    return false;
  }
  bool withdrawn() const { return (word_->load(std::memory_order_relaxed) & kWithdrawn) != 0; }
  // After Enter. True: it was withdrawn meanwhile, and this was the last use.
  bool Leave() {
    const uint64_t after = word_->fetch_sub(1, std::memory_order_acq_rel) - 1;
    return (after & kWithdrawn) != 0 && (after & kUses) == 0;
  }

 private:
  static constexpr uint64_t kWithdrawn = uint64_t{1} << 31;
  static constexpr uint64_t kOpen = uint64_t{1} << 30;
  static constexpr uint64_t kUses = kOpen - 1;
  static constexpr int kMostTries = 1000;

  Word* word_;
};

}  // namespace quarry::transport::shm

#endif  // QUARRY_COMMON_TRANSPORT_SHM_GATE_H_
