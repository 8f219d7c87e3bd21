// What transfers take, learnt from those that were made.
#ifndef QUARRY_COMMON_TRANSFER_RATE_H_
#define QUARRY_COMMON_TRANSFER_RATE_H_

#include <cstdint>
#include <mutex>

namespace quarry {

// seconds = fixed + bytes / bandwidth, fitted by least squares in which every transfer counts
// kDecay times as much as the one after it, so that it follows the network of today. Where
// sizes vary too little to tell the two parts apart, all is put down to bandwidth.
// Thread-safe.
class TransferRate {
 public:
  static constexpr double kDecay = 0.98;

  // One transfer. Those of no bytes or no time say nothing.
  void Record(uint64_t bytes, int64_t ns);

  struct Fit {
    double fixed_ns = 0;
    double ns_per_byte = 0;  // 0: nothing has been recorded
  };
  Fit fit() const;
  // 0 when nothing has been recorded.
  int64_t EstimateNs(uint64_t bytes) const;

 private:
  mutable std::mutex mutex_;
  // Weighted sums over x = bytes and y = ns.
  double weight_ = 0;
  double x_ = 0;
  double y_ = 0;
  double xx_ = 0;
  double xy_ = 0;
};

}  // namespace quarry

#endif  // QUARRY_COMMON_TRANSFER_RATE_H_
