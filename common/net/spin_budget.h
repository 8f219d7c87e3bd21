// How long to look again for what is awaited before going to sleep over it.
#ifndef QUARRY_COMMON_NET_SPIN_BUDGET_H_
#define QUARRY_COMMON_NET_SPIN_BUDGET_H_

#include <sched.h>

#include <algorithm>
#include <cstdint>

#include "common/clock.h"

namespace quarry {

// To be woken costs more than a short wait: the waker interrupts a sleeping core, which in a
// virtual machine can take longer than what is awaited. So where waits have been short on
// average, up to `most_ns` of the next one are spent awake; where they have not, of every
// 16th: it may be the sleeping itself that makes them long. Not thread-safe.
class SpinBudget {
 public:
  // 0: never awake.
  explicit SpinBudget(int64_t most_ns) : most_ns_(most_ns), average_ns_(2 * most_ns) {}

  // Waits: looks, until look() is true or the budget or `longest_ns` is used up, and gives way
  // to whoever needs the core between two looks; then sleeps, by sleep().
  template <typename Look, typename Sleep>
  void Wait(int64_t longest_ns, Look&& look, Sleep&& sleep) {
    const int64_t start_ns = Clock::Real()->NowNs();
    const int64_t awake_until_ns = start_ns + std::min(ns(), longest_ns);
    bool there = false;
    while (!there && Clock::Real()->NowNs() < awake_until_ns) {
      there = look();
      if (!there) sched_yield();
    }
    if (!there) sleep();
    Waited(Clock::Real()->NowNs() - start_ns);
  }

  // How much of the next wait to stay awake.
  int64_t ns() const { return average_ns_ <= most_ns_ || waits_ % kTryEvery == 0 ? most_ns_ : 0; }

  // A wait, asleep or awake, took so long. The longest count as twice the most, so that
  // after a pause of any length a few short waits suffice again.
  void Waited(int64_t ns) {
    ++waits_;
    average_ns_ += (std::min(ns, 2 * most_ns_) - average_ns_) / kWeight;
  }

 private:
  static constexpr int64_t kWeight = 8;
  static constexpr uint32_t kTryEvery = 16;

  const int64_t most_ns_;
  int64_t average_ns_;
  uint32_t waits_ = 0;
};

}  // namespace quarry

#endif  // QUARRY_COMMON_NET_SPIN_BUDGET_H_
