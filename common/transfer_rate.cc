#include "common/transfer_rate.h"

namespace quarry {
namespace {

// Of the variance of sizes to their mean square: below, they are one size for our purposes.
constexpr double kLeastSpread = 0.01;

}  // namespace

void TransferRate::Record(uint64_t bytes, int64_t ns) {
  if (bytes == 0 || ns <= 0) return;
  const auto x = static_cast<double>(bytes);
  const auto y = static_cast<double>(ns);
  std::lock_guard<std::mutex> lock(mutex_);
  weight_ = weight_ * kDecay + 1;
  x_ = x_ * kDecay + x;
  y_ = y_ * kDecay + y;
  xx_ = xx_ * kDecay + x * x;
  xy_ = xy_ * kDecay + x * y;
}

TransferRate::Fit TransferRate::fit() const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (weight_ == 0) return {};
  const Fit through_origin{0, xy_ / xx_};
  const double variance = weight_ * xx_ - x_ * x_;
  if (variance < kLeastSpread * weight_ * xx_) return through_origin;
  const double slope = (weight_ * xy_ - x_ * y_) / variance;
  const double fixed = (y_ - slope * x_) / weight_;
  // Noise can make either negative, which no transfer is.
  if (slope <= 0 || fixed < 0) return through_origin;
  return {fixed, slope};
}

int64_t TransferRate::EstimateNs(uint64_t bytes) const {
  const Fit fitted = fit();
  if (fitted.ns_per_byte == 0) return 0;
  return static_cast<int64_t>(fitted.fixed_ns + fitted.ns_per_byte * static_cast<double>(bytes));
}

}  // namespace quarry
