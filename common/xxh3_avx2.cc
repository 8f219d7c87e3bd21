// Compiled with -mavx2; see CMakeLists.txt.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/xxh3_kernels.h"

namespace quarry {
namespace {

uint64_t Sum(const void* data, size_t bytes) { return XXH3_64bits(data, bytes); }

void Update(void* state, const void* data, size_t bytes) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state), data, bytes);
}

}  // namespace

const Xxh3Kernels kXxh3Avx2 = {Sum, Update};

}  // namespace quarry
