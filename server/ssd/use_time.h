// When blocks were used, as records remember it.
#ifndef QUARRY_SERVER_SSD_USE_TIME_H_
#define QUARRY_SERVER_SSD_USE_TIME_H_

#include <cstdint>

#include "common/clock.h"

namespace quarry::server {

// In steps of 10 ms; 0: never. Wraps after 497 days, so only differences mean something.
using UseTime = uint32_t;

inline UseTime UseTimeNow(const Clock& clock) {
  constexpr int64_t kStepNs = 10'000'000;
  return static_cast<UseTime>(clock.NowNs() / kStepNs) | 1;
}

inline bool IsLater(UseTime a, UseTime b) { return static_cast<int32_t>(a - b) > 0; }

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SSD_USE_TIME_H_
