#include "client/disjoint.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"

namespace quarry {
namespace {

struct Stretch {
  uintptr_t begin;
  uintptr_t end;
  uint32_t list;
};

bool BeginsBefore(const Stretch& a, const Stretch& b) { return a.begin < b.begin; }

uintptr_t Address(const std::byte* byte) { return reinterpret_cast<uintptr_t>(byte); }

// From the first byte of any piece to the last.
Stretch ExtentOf(absl::Span<const Segment> segments, size_t list) {
  Stretch extent{UINTPTR_MAX, 0, static_cast<uint32_t>(list)};
  for (const Segment& segment : segments) {
    const uintptr_t begin = Address(segment.base);
    extent.begin = std::min(extent.begin, begin);
    extent.end = std::max(extent.end, begin + (segment.count - 1) * segment.stride + segment.length);
  }
  return extent;
}

void AppendPieces(absl::Span<const Segment> segments, uint32_t list, std::vector<Stretch>* pieces) {
  for (const Segment& segment : segments) {
    for (size_t i = 0; i < segment.count; ++i) {
      const uintptr_t begin = Address(segment.base) + i * segment.stride;
      pieces->push_back({begin, begin + segment.length, list});
    }
  }
}

class DisjointChecker {
 public:
  DisjointChecker(absl::Span<const absl::Span<const Segment>> lists, absl::FunctionRef<std::string(size_t)> name)
      : lists_(lists), name_(name) {}

  absl::Status Check() {
    std::vector<Stretch> extents;
    extents.reserve(lists_.size());
    for (size_t i = 0; i < lists_.size(); ++i) extents.push_back(ExtentOf(lists_[i], i));
    std::sort(extents.begin(), extents.end(), BeginsBefore);
    // Only lists whose extents overlap need a look at their pieces.
    for (size_t first = 0; first < extents.size();) {
      uintptr_t end = extents[first].end;
      size_t next = first + 1;
      for (; next < extents.size() && extents[next].begin < end; ++next) end = std::max(end, extents[next].end);
      absl::Status status = CheckPieces(absl::MakeConstSpan(extents).subspan(first, next - first));
      if (!status.ok()) return status;
      first = next;
    }
    return absl::OkStatus();
  }

 private:
  absl::Status CheckPieces(absl::Span<const Stretch> cluster) {
    if (cluster.size() == 1) return absl::OkStatus();
    std::vector<Stretch> pieces;
    for (const Stretch& extent : cluster) {
      for (const Segment& segment : lists_[extent.list]) pieces_ += segment.count;
      if (pieces_ > kMaxInterleavedPieces) {
        return absl::InvalidArgumentError(
            absl::StrCat(name_(extent.list), ": more than ", kMaxInterleavedPieces, " interleaved pieces in all"));
      }
      AppendPieces(lists_[extent.list], extent.list, &pieces);
    }
    std::sort(pieces.begin(), pieces.end(), BeginsBefore);
    for (size_t i = 1; i < pieces.size(); ++i) {
      if (pieces[i].begin >= pieces[i - 1].end) continue;
      const uint32_t one = std::min(pieces[i].list, pieces[i - 1].list);
      const uint32_t other = std::max(pieces[i].list, pieces[i - 1].list);
      return absl::InvalidArgumentError(
          absl::StrCat(name_(other), ": shares bytes with ", name_(one), "; destinations must not overlap"));
    }
    return absl::OkStatus();
  }

  absl::Span<const absl::Span<const Segment>> lists_;
  absl::FunctionRef<std::string(size_t)> name_;
  size_t pieces_ = 0;
};

}  // namespace

absl::Status CheckDisjoint(absl::Span<const absl::Span<const Segment>> lists,
                           absl::FunctionRef<std::string(size_t)> name) {
  return DisjointChecker(lists, name).Check();
}

}  // namespace quarry
