// The seed of a random test: printed, and settable to replay a failure.
#ifndef QUARRY_TESTS_UNIT_COMMON_TEST_SEED_H_
#define QUARRY_TESTS_UNIT_COMMON_TEST_SEED_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace quarry {

// QUARRY_TEST_SEED, else a new one for each run.
inline uint64_t TestSeed() {
  const char* given = std::getenv("QUARRY_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  std::printf("QUARRY_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

class TestRandom {
 public:
  TestRandom() : TestRandom(TestSeed()) {}
  // One of several that follow from a seed that has been printed.
  explicit TestRandom(uint64_t seed) : engine_(seed) {}
  // From least to most, both included.
  uint64_t Between(uint64_t least, uint64_t most) {
    return std::uniform_int_distribution<uint64_t>(least, most)(engine_);
  }
  bool Chance(double probability) { return std::bernoulli_distribution(probability)(engine_); }

 private:
  std::mt19937_64 engine_;
};

}  // namespace quarry

#endif  // QUARRY_TESTS_UNIT_COMMON_TEST_SEED_H_
