// What loading takes, as a client's gets have shown. A client has one transport, so this is
// about one path from each tier.
#ifndef QUARRY_CLIENT_LOAD_RATES_H_
#define QUARRY_CLIENT_LOAD_RATES_H_

#include <array>
#include <cstdint>

#include "common/load_advice.h"
#include "common/transfer_rate.h"

namespace quarry {

// Thread-safe.
class LoadRates {
 public:
  // A get that moved so many bytes from the tier.
  void Record(LoadTier tier, uint64_t bytes, int64_t ns) { rates_[static_cast<size_t>(tier)].Record(bytes, ns); }

  // bytes_per_second is 0 where nothing was recorded.
  std::array<LoadPath, kLoadTiers> paths() const {
    std::array<LoadPath, kLoadTiers> paths;
    for (size_t tier = 0; tier < kLoadTiers; ++tier) {
      const TransferRate::Fit fit = rates_[tier].fit();
      constexpr double kNsPerSecond = 1e9;
      if (fit.ns_per_byte > 0) paths[tier] = {fit.fixed_ns / kNsPerSecond, kNsPerSecond / fit.ns_per_byte};
    }
    return paths;
  }

 private:
  std::array<TransferRate, kLoadTiers> rates_;
};

}  // namespace quarry

#endif  // QUARRY_CLIENT_LOAD_RATES_H_
