#include "common/transport/chunk_verifier.h"

#include <algorithm>

namespace quarry::transport {

RangeEdges EdgesOf(const PayloadRange& range) {
  const size_t end = range.offset + range.bytes;
  const size_t first_chunk = range.offset / kChunkBytes;
  const size_t last_chunk = (end - 1) / kChunkBytes;
  const bool starts_inside = range.offset % kChunkBytes != 0;
  const bool ends_inside = end % kChunkBytes != 0 && end != range.payload_bytes;
  if (first_chunk == last_chunk) return {starts_inside || ends_inside, false};
  return {starts_inside, ends_inside};
}

void ChunkVerifier::Start(absl::Span<const Segment> segments, const PayloadRange& range,
                          absl::Span<const uint64_t> expected, const uint64_t edge_sums[2], uint64_t* out) {
  cursor_ = SegmentCursor(segments);
  range_ = range;
  edges_ = EdgesOf(range);
  expected_ = expected;
  edge_sums_[0] = edge_sums[0];
  edge_sums_[1] = edge_sums[1];
  out_ = out;
  summed_ = 0;
  intact_ = true;
}

uint64_t ChunkVerifier::SumOf(size_t bytes) {
  iovec pieces[16];
  size_t covered = 0;
  size_t count = cursor_.Peek(pieces, std::size(pieces), bytes, &covered);
  if (count == 1 && covered == bytes) {
    cursor_.Advance(bytes);
    return ChunkSum(pieces[0].iov_base, bytes);
  }
  uint64_t sum = 0;
  summer_.Start(bytes, &sum);
  for (size_t left = bytes; left > 0;) {
    for (size_t i = 0; i < count; ++i) summer_.Update(pieces[i].iov_base, pieces[i].iov_len);
    cursor_.Advance(covered);
    left -= covered;
    if (left > 0) count = cursor_.Peek(pieces, std::size(pieces), left, &covered);
  }
  summer_.Finish();
  return sum;
}

uint64_t ChunkVerifier::ExpectedSum(size_t chunk) const {
  const size_t first = range_.offset / kChunkBytes;
  const size_t last = (range_.offset + range_.bytes - 1) / kChunkBytes;
  if (chunk == first && edges_.first_partial) return edge_sums_[0];
  if (chunk == last && edges_.last_partial) return edge_sums_[1];
  return expected_[chunk];
}

void ChunkVerifier::Advance(size_t arrived) {
  while (summed_ < range_.bytes) {
    const size_t position = range_.offset + summed_;
    const size_t chunk = position / kChunkBytes;
    const size_t end = std::min((chunk + 1) * kChunkBytes, range_.offset + range_.bytes) - range_.offset;
    if (end > arrived) return;
    const uint64_t sum = SumOf(end - summed_);
    if (out_ != nullptr) out_[chunk - range_.offset / kChunkBytes] = sum;
    if (!expected_.empty() && sum != ExpectedSum(chunk)) intact_ = false;
    summed_ = end;
  }
}

}  // namespace quarry::transport
