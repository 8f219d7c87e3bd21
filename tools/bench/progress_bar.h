// A line on standard error that is drawn over and over.
#ifndef QUARRY_TOOLS_BENCH_PROGRESS_BAR_H_
#define QUARRY_TOOLS_BENCH_PROGRESS_BAR_H_

#include <cstdint>
#include <string>

namespace quarry::bench {

// "replay [######........] 42 %  5053/12031  12 s", without the return before it.
std::string ProgressLine(const std::string& what, uint64_t done, uint64_t total, double seconds);
void DrawProgress(const std::string& line);
void EraseProgress();

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_PROGRESS_BAR_H_
