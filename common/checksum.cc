#include "common/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

#include "common/xxh3_kernels.h"

namespace quarry {
namespace {

static_assert(std::endian::native == std::endian::little, "sums and sizes are summed as they lie in memory");

void Add(XXH3_state_t* state, const void* data, size_t bytes) { Xxh3().update(state, data, bytes); }

}  // namespace

uint64_t ChunkSum(const void* data, size_t bytes) { return Xxh3().sum(data, bytes); }

uint64_t IdentitySeed(absl::string_view namespace_id, uint32_t group, uint32_t shard, absl::string_view hash) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  Add(&state, namespace_id.data(), namespace_id.size());
  Add(&state, &group, sizeof(group));
  Add(&state, &shard, sizeof(shard));
  Add(&state, hash.data(), hash.size());
  return XXH3_64bits_digest(&state);
}

uint64_t RootSum(uint64_t identity_seed, size_t payload_bytes, absl::Span<const uint64_t> chunk_sums) {
  const uint64_t size = payload_bytes;
  XXH3_state_t state{};  // reset_withSeed compares with the seed that is there
  XXH3_64bits_reset_withSeed(&state, identity_seed);
  Add(&state, &size, sizeof(size));
  Add(&state, chunk_sums.data(), chunk_sums.size() * sizeof(uint64_t));
  return XXH3_64bits_digest(&state);
}

struct ChunkSummer::State {
  XXH3_state_t partial;  // of the open chunk
  bool is_open = false;  // the open chunk has bytes in `partial`
  size_t left = 0;       // bytes until the next boundary
  uint64_t* out = nullptr;
  size_t sums = 0;

  void Emit(uint64_t sum) {
    out[sums++] = sum;
    is_open = false;
    left = kChunkBytes;
  }
};

ChunkSummer::ChunkSummer() : state_(new State) {}
ChunkSummer::~ChunkSummer() { delete state_; }
ChunkSummer::ChunkSummer(ChunkSummer&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
ChunkSummer& ChunkSummer::operator=(ChunkSummer&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

void ChunkSummer::Start(size_t first_chunk_bytes, uint64_t* out) {
  state_->is_open = false;
  state_->left = first_chunk_bytes > 0 ? first_chunk_bytes : kChunkBytes;
  state_->out = out;
  state_->sums = 0;
}

void ChunkSummer::Update(const void* data, size_t bytes) {
  State& state = *state_;
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const size_t take = std::min(bytes, state.left);
    if (!state.is_open && take == state.left) {
      state.Emit(ChunkSum(next, take));  // a whole chunk at once: about no overhead over the bare sum
    } else {
      if (!std::exchange(state.is_open, true)) XXH3_64bits_reset(&state.partial);
      Add(&state.partial, next, take);
      state.left -= take;
      if (state.left == 0) state.Emit(XXH3_64bits_digest(&state.partial));
    }
    next += take;
    bytes -= take;
  }
}

size_t ChunkSummer::Finish() {
  if (state_->is_open) state_->Emit(XXH3_64bits_digest(&state_->partial));
  return state_->sums;
}

void SumSegments(absl::Span<const Segment> segments, size_t payload_bytes, uint64_t* sums) {
  constexpr size_t kPiecesAtOnce = 16;
  iovec pieces[kPiecesAtOnce];
  SegmentCursor cursor(segments);
  for (size_t done = 0; done < payload_bytes;) {
    const size_t chunk = std::min(kChunkBytes, payload_bytes - done);
    size_t covered = 0;
    size_t count = cursor.Peek(pieces, kPiecesAtOnce, chunk, &covered);
    if (count == 1 && covered == chunk) {
      *sums++ = ChunkSum(pieces[0].iov_base, chunk);
      cursor.Advance(chunk);
    } else {
      XXH3_state_t state;
      XXH3_64bits_reset(&state);
      for (size_t left = chunk; left > 0; count = cursor.Peek(pieces, kPiecesAtOnce, left, &covered)) {
        for (size_t i = 0; i < count; ++i) Add(&state, pieces[i].iov_base, pieces[i].iov_len);
        assert(covered > 0 && "the segments hold payload_bytes");
        cursor.Advance(covered);
        left -= covered;
      }
      *sums++ = XXH3_64bits_digest(&state);
    }
    done += chunk;
  }
}

}  // namespace quarry
