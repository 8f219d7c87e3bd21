// Randomness as an injectable dependency: secrets (session ids, lease tokens) and jitter.
#ifndef QUARRY_COMMON_RANDOM_H_
#define QUARRY_COMMON_RANDOM_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace quarry {

// Unguessable bytes from the kernel's generator. Aborts when there are none: a guessable
// lease or session would be worse.
std::string SecureRandomBytes(size_t bytes);

}  // namespace quarry

#endif  // QUARRY_COMMON_RANDOM_H_
