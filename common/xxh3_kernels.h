// XXH3-64 compiled for what the processor can do. The sums are the same; with AVX2 they
// take about half the time, which shows in every transfer.
#ifndef QUARRY_COMMON_XXH3_KERNELS_H_
#define QUARRY_COMMON_XXH3_KERNELS_H_

#include <cstddef>
#include <cstdint>

namespace quarry {

struct Xxh3Kernels {
  uint64_t (*sum)(const void* data, size_t bytes);              // XXH3_64bits
  void (*update)(void* state, const void* data, size_t bytes);  // XXH3_64bits_update
};

extern const Xxh3Kernels kXxh3Baseline;
#if defined(__x86_64__)
extern const Xxh3Kernels kXxh3Avx2;
#endif

// The best that this processor runs.
inline const Xxh3Kernels& Xxh3() {
#if defined(__x86_64__)
  static const Xxh3Kernels& best = __builtin_cpu_supports("avx2") ? kXxh3Avx2 : kXxh3Baseline;
  return best;
#else
  return kXxh3Baseline;
#endif
}

}  // namespace quarry

#endif  // QUARRY_COMMON_XXH3_KERNELS_H_
