#include "client/backoff.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "common/random.h"

namespace quarry {

Backoff::Backoff(uint32_t min_ms, uint32_t max_ms, std::function<double()> random)
    : min_ms_(min_ms), max_ms_(max_ms), random_(std::move(random)), ceiling_ms_(min_ms) {}

uint32_t Backoff::NextMs() {
  ceiling_ms_ = std::min<uint64_t>(ceiling_ms_ * 2, max_ms_);
  return min_ms_ + static_cast<uint32_t>(random_() * static_cast<double>(ceiling_ms_ - min_ms_ + 1));
}

double SecureRandomFraction() {
  const std::string bytes = SecureRandomBytes(sizeof(uint64_t));
  uint64_t bits;
  std::memcpy(&bits, bytes.data(), sizeof bits);
  return std::ldexp(static_cast<double>(bits >> 11), -53);
}

}  // namespace quarry
