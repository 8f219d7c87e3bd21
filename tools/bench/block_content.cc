#include "tools/bench/block_content.h"

#include <cstring>

namespace quarry::bench {
namespace {

constexpr uint64_t kStep = 0xD1342543DE82EF95u;

uint64_t Base(uint64_t id) { return Mix(id ^ 0x71B7A5E2C4D9F083u); }

// Calls use(words of the item before this piece, piece, words) for every piece in order.
template <typename Use>
void ForEachPiece(absl::Span<const Segment> segments, Use use) {
  size_t done = 0;
  for (const Segment& segment : segments) {
    for (size_t i = 0; i < segment.count; ++i) {
      const size_t words = segment.length / sizeof(uint64_t);
      use(done, segment.base + i * segment.stride, words);
      done += words;
    }
  }
}

int DifferingBytes(uint64_t a, uint64_t b) {
  int bytes = 0;
  for (uint64_t difference = a ^ b; difference != 0; difference >>= 8) bytes += (difference & 0xff) != 0;
  return bytes;
}

uint64_t Load(const std::byte* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

}  // namespace

uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

void AppendHash(uint64_t id, uint64_t salt, std::string* out) {
  uint64_t words[kHashBytes / sizeof(uint64_t)];
  for (size_t i = 0; i < std::size(words); ++i) words[i] = Mix(Mix(id + 1) ^ Mix(salt * 8 + i));
  out->append(reinterpret_cast<const char*>(words), sizeof(words));
}

std::string HashOf(uint64_t id, uint64_t salt) {
  std::string hash;
  AppendHash(id, salt, &hash);
  return hash;
}

void FillBlock(uint64_t id, absl::Span<const Segment> segments) {
  ForEachPiece(segments, [base = Base(id)](size_t before, std::byte* piece, size_t words) {
    const uint64_t first = base + before * kStep;
    for (size_t i = 0; i < words; ++i) {
      const uint64_t word = first + i * kStep;
      std::memcpy(piece + i * sizeof(word), &word, sizeof(word));
    }
  });
}

void PoisonBlock(absl::Span<const Segment> segments) {
  ForEachPiece(segments, [](size_t, std::byte* piece, size_t words) {
    for (size_t at = 0; at < words * 8; at += kPoisonStride) std::memset(piece + at, 0xEE, sizeof(uint64_t));
  });
}

uint64_t WrongBytes(uint64_t id, absl::Span<const Segment> segments) {
  uint64_t wrong = 0;
  ForEachPiece(segments, [&, base = Base(id)](size_t before, const std::byte* piece, size_t words) {
    const uint64_t first = base + before * kStep;
    uint64_t differs = 0;  // found first, counted only then: this loop vectorises
    for (size_t i = 0; i < words; ++i) differs |= Load(piece + i * 8) ^ (first + i * kStep);
    if (differs == 0) return;
    for (size_t i = 0; i < words; ++i) {
      wrong += static_cast<uint64_t>(DifferingBytes(Load(piece + i * 8), first + i * kStep));
    }
  });
  return wrong;
}

uint64_t WrongBytesSampled(uint64_t id, absl::Span<const Segment> segments, uint64_t seed, size_t words) {
  uint64_t wrong = 0;
  for (size_t n = 0; n < words; ++n) {
    const uint64_t random = Mix(seed + n);
    const size_t index = random % segments.size();
    const Segment& segment = segments[index];
    const size_t word = (random >> 32) % (segment.length / 8);
    const size_t before = index * (segment.length / 8) + word;
    wrong += static_cast<uint64_t>(DifferingBytes(Load(segment.base + word * 8), Base(id) + before * kStep));
  }
  return wrong;
}

}  // namespace quarry::bench
