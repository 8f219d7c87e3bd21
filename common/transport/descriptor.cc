#include "common/transport/descriptor.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace quarry::transport {
namespace {

size_t AddressOf(const std::byte* pointer) { return reinterpret_cast<size_t>(pointer); }

}  // namespace

absl::Status CheckInside(const Descriptor& descriptor, uint64_t region_bytes, uint64_t* bytes) {
  uint64_t end = 0;
  if (descriptor.length == 0 || descriptor.count == 0 ||
      __builtin_mul_overflow(descriptor.stride, uint64_t{descriptor.count} - 1, &end) ||
      __builtin_add_overflow(end, descriptor.length, &end) || __builtin_add_overflow(end, descriptor.offset, &end) ||
      end > region_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("descriptor: pieces up to ", end, " of a region of ", region_bytes, " bytes, or none"));
  }
  if (__builtin_mul_overflow(descriptor.length, uint64_t{descriptor.count}, bytes)) {
    return absl::InvalidArgumentError("descriptor: more bytes than an item has");
  }
  return absl::OkStatus();
}

void InsertRange(const RegisteredRange& range, RegisteredRanges* ranges) {
  const auto after =
      std::lower_bound(ranges->begin(), ranges->end(), range.range.base,
                       [](const RegisteredRange& one, const std::byte* base) { return one.range.base < base; });
  ranges->insert(after, range);
}

bool Describer::Describe(absl::Span<const Segment> segments, size_t most, std::vector<Descriptor>* out) {
  const size_t before = out->size();
  most_ = most;
  out_ = out;
  const bool all = std::all_of(segments.begin(), segments.end(), [this](const Segment& s) { return AddSegment(s); });
  if (!all) out->resize(before);
  return all;
}

bool Describer::AddSegment(const Segment& segment) {
  const size_t extent = (segment.count - 1) * segment.stride + segment.length;
  if (AddPieces(segment.base, extent, segment.length, segment.stride, segment.count)) return true;
  for (size_t i = 0; i < segment.count; ++i) {
    if (!AddPieces(segment.base + i * segment.stride, segment.length, segment.length, 0, 1)) return false;
  }
  return true;
}

bool Describer::AddPieces(const std::byte* base, size_t extent, size_t length, size_t stride, size_t count) {
  if (!Contains(base, extent)) {
    const auto after =
        std::upper_bound(ranges_.begin(), ranges_.end(), base,
                         [](const std::byte* address, const RegisteredRange& one) { return address < one.range.base; });
    if (after == ranges_.begin()) return false;
    last_ = static_cast<size_t>(after - ranges_.begin()) - 1;
    if (!Contains(base, extent)) return false;
  }
  if (out_->size() >= most_) return false;
  out_->push_back({ranges_[last_].key, static_cast<uint32_t>(count),
                   AddressOf(base) - AddressOf(ranges_[last_].range.base), length, count > 1 ? stride : 0});
  return true;
}

bool Describer::Contains(const std::byte* base, size_t bytes) const {
  if (last_ >= ranges_.size()) return false;
  const MemoryRange& range = ranges_[last_].range;
  const size_t offset = AddressOf(base) - AddressOf(range.base);  // huge when it lies before
  return offset < range.bytes && bytes <= range.bytes - offset;
}

}  // namespace quarry::transport
