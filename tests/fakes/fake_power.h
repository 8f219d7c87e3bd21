// FAKE. The power of fake disks: it goes at the sync that a test names, and what no sync had
// covered by then is lost afterwards, as the test chooses.
#ifndef QUARRY_TESTS_FAKES_FAKE_POWER_H_
#define QUARRY_TESTS_FAKES_FAKE_POWER_H_

#include <cstdint>
#include <mutex>

namespace quarry::fakes {

// What becomes of what was written and not synced. kSome: of each page one of the states that
// it has had since it was last synced, and of what was appended a part.
enum class Loss : uint8_t { kAll, kSome, kNone };

// Thread-safe.
class FakePower {
 public:
  // So many syncs from now on succeed; the next one does nothing, and nothing does after it.
  void CutAfter(uint64_t syncs);
  void Cut();
  // It is back, and stays.
  void Restore();
  // False: the power is gone; perhaps just now.
  bool BeforeSync();
  bool on() const;
  uint64_t syncs() const;  // that succeeded

 private:
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  bool on_ = true;
  uint64_t syncs_ = 0;
  uint64_t last_sync_ = UINT64_MAX;
};

}  // namespace quarry::fakes

#endif  // QUARRY_TESTS_FAKES_FAKE_POWER_H_
