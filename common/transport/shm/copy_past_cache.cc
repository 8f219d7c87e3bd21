#include "common/transport/shm/copy_past_cache.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace quarry::transport::shm {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kAhead = 1024;           // bytes of the source that are fetched ahead
constexpr size_t kLeast = 4 << 10;        // below it there is nothing to win
constexpr size_t kBounceBytes = 8 << 10;  // half of a small first-level cache

#if defined(__SSE2__)

// As memcpy, and fetches as many bytes at `ahead` into the cache. To be followed by Fence.
void Store(std::byte* to, const std::byte* from, size_t bytes, const std::byte* ahead) {
  const size_t head = std::min(bytes, (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine);
  std::memcpy(to, from, head);
  to += head;
  from += head;
  bytes -= head;
  for (; bytes >= kLine; to += kLine, from += kLine, ahead += kLine, bytes -= kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from);
    auto* target = reinterpret_cast<__m128i*>(to);
    _mm_prefetch(reinterpret_cast<const char*>(ahead), _MM_HINT_T0);
    const __m128i a = _mm_loadu_si128(source);
    const __m128i b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2);
    const __m128i d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  std::memcpy(to, from, bytes);
}

void Fence() { _mm_sfence(); }

#else

void Store(std::byte* to, const std::byte* from, size_t bytes, const std::byte*) { std::memcpy(to, from, bytes); }
void Fence() {}

#endif

}  // namespace

void CopyPastCache(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes < kLeast) {
    std::memcpy(to, from, bytes);
    return;
  }
  Store(to, from, bytes, from + kAhead);
  Fence();
}

void CopyPastCacheSummed(std::byte* to, const std::byte* from, size_t bytes, const std::byte* after,
                         ChunkSummer* summer) {
  if (bytes < kLeast) {
    std::memcpy(to, from, bytes);
    summer->Update(to, bytes);
    return;
  }
  // Summed and stored from a copy that stays in the cache, while the next part is fetched.
  alignas(kLine) std::byte bounce[kBounceBytes];
  for (size_t part; bytes > 0; bytes -= part, from += part, to += part) {
    part = std::min(bytes, kBounceBytes);
    std::memcpy(bounce, from, part);
    summer->Update(bounce, part);
    Store(to, bounce, part, part < bytes ? from + part : after);
  }
  Fence();
}

}  // namespace quarry::transport::shm
