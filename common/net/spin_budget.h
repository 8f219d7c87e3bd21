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
// 16th: it may be the sleeping itself that makes them long. And where others want the core,
// none, for a while: a thread that gives way to them gets the core back when they have had
// their share, milliseconds later, whereas one that sleeps is woken by what it waits for.
// Not thread-safe.
class SpinBudget {
 public:
  // 0: never awake.
  explicit SpinBudget(int64_t most_ns) : most_ns_(most_ns), average_ns_(2 * most_ns) {}

  // Waits: looks, until look() is true or the budget or `longest_ns` is used up, and gives way
  // to whoever needs the core between two looks; then sleeps, by sleep().
  template <typename Look, typename Sleep>
  void Wait(int64_t longest_ns, Look&& look, Sleep&& sleep) {
    Wait(longest_ns, look, sleep, [] { sched_yield(); });
  }

  template <typename Look, typename Sleep, typename GiveWay>
  void Wait(int64_t longest_ns, Look&& look, Sleep&& sleep, GiveWay&& give_way) {
    const int64_t start_ns = Clock::Real()->NowNs();
    const int64_t awake_ns = std::min(ns(start_ns), longest_ns);
    const bool there = awake_ns > 0 && LookOften(start_ns + awake_ns, look, give_way);
    if (!there) sleep();
    Waited(Clock::Real()->NowNs() - start_ns);
  }

  // How much of a wait that begins now to stay awake.
  int64_t ns(int64_t now_ns) const {
    if (now_ns < asleep_until_ns_) return 0;
    return average_ns_ <= most_ns_ || waits_ % kTryEvery == 0 ? most_ns_ : 0;
  }

  // A wait, asleep or awake, took so long. The longest count as twice the most, so that
  // after a pause of any length a few short waits suffice again.
  void Waited(int64_t ns) {
    ++waits_;
    average_ns_ += (std::min(ns, 2 * most_ns_) - average_ns_) / kWeight;
  }

  // Giving way took so long, until now. The more often others want the core, the more rarely it
  // is tried whether they still do.
  void GaveWay(int64_t ns, int64_t now_ns) {
    if (ns < kCrowdedNs) {
      if (++times_alone_ < kTimesAlone) return;
      asleep_ns_ = kLeastAsleepNs;
    } else {
      asleep_until_ns_ = now_ns + asleep_ns_;
      asleep_ns_ = std::min(2 * asleep_ns_, kMostAsleepNs);
    }
    times_alone_ = 0;
  }

 private:
  static constexpr int64_t kWeight = 8;
  static constexpr uint32_t kTryEvery = 16;
  // More than it takes to find that nobody else wants the core, less than another's turn.
  static constexpr int64_t kCrowdedNs = 100'000;
  static constexpr int64_t kLeastAsleepNs = 100'000'000;
  static constexpr int64_t kMostAsleepNs = 6'400'000'000;
  static constexpr uint32_t kTimesAlone = 10'000;

  // Until look() is true, the time has come, or others want the core. False: not there.
  template <typename Look, typename GiveWay>
  bool LookOften(int64_t until_ns, Look& look, GiveWay& give_way) {
    int64_t now_ns = 0;
    do {
      if (look()) return true;
      const int64_t before_ns = Clock::Real()->NowNs();
      give_way();
      now_ns = Clock::Real()->NowNs();
      GaveWay(now_ns - before_ns, now_ns);
    } while (now_ns < until_ns && now_ns >= asleep_until_ns_);
    return false;
  }

  const int64_t most_ns_;
  int64_t average_ns_;
  uint32_t waits_ = 0;
  int64_t asleep_until_ns_ = 0;
  int64_t asleep_ns_ = kLeastAsleepNs;  // when others want the core again
  uint32_t times_alone_ = 0;            // that nobody did, since the last change of asleep_ns_
};

}  // namespace quarry

#endif  // QUARRY_COMMON_NET_SPIN_BUDGET_H_
