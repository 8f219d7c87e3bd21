#include "common/transport/shm/copy_past_cache.h"

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace quarry::transport::shm {

#if defined(__SSE2__)

void CopyPastCache(std::byte* to, const std::byte* from, size_t bytes) {
  constexpr size_t kLine = 64;
  constexpr size_t kAhead = 1024;     // bytes of the source that are fetched ahead
  constexpr size_t kLeast = 4 << 10;  // below it there is nothing to win
  const size_t head = (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine;
  if (bytes < kLeast) {
    std::memcpy(to, from, bytes);
    return;
  }
  std::memcpy(to, from, head);
  to += head;
  from += head;
  bytes -= head;
  for (; bytes >= kLine; to += kLine, from += kLine, bytes -= kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from);
    auto* target = reinterpret_cast<__m128i*>(to);
    _mm_prefetch(reinterpret_cast<const char*>(from) + kAhead, _MM_HINT_T0);
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
  _mm_sfence();
}

#else

void CopyPastCache(std::byte* to, const std::byte* from, size_t bytes) { std::memcpy(to, from, bytes); }

#endif

}  // namespace quarry::transport::shm
