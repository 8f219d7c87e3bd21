#include "tools/bench/progress_bar.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_format.h"

namespace quarry::bench {
namespace {
constexpr uint64_t kCells = 40;
constexpr char kEraseToEnd[] = "\x1b[K";
}  // namespace

std::string ProgressLine(const std::string& what, uint64_t done, uint64_t total, double seconds) {
  const uint64_t of = std::max<uint64_t>(total, 1);
  const uint64_t full = std::min(done, of) * kCells / of;
  return absl::StrFormat("%s [%s%s] %d %%  %d/%d  %.0f s", what, std::string(full, '#'),
                         std::string(kCells - full, '.'), std::min(done, of) * 100 / of, done, total, seconds);
}

void DrawProgress(const std::string& line) {
  std::fprintf(stderr, "\r%s%s", line.c_str(), kEraseToEnd);
  std::fflush(stderr);
}

void EraseProgress() { DrawProgress(""); }

}  // namespace quarry::bench
