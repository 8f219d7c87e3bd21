#include "server/memory_limit.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace quarry::server {
namespace {

constexpr uint64_t kNoLimit = ~uint64_t{0};

// Empty when there is no such file.
std::string ReadFile(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

uint64_t MachineMemory(const std::string& root) {
  const std::string text = ReadFile(root + "/proc/meminfo");
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, "MemTotal:")) continue;
    absl::ConsumeSuffix(&line, "kB");
    uint64_t kib = 0;
    if (absl::SimpleAtoi(absl::StripAsciiWhitespace(line), &kib)) return kib << 10;
  }
  return kNoLimit;
}

// Of the group and all above it, up to the mount. "max" and absent files are no limit.
uint64_t GroupLimit(const std::string& mount, std::string group, const char* file) {
  uint64_t limit = kNoLimit;
  while (true) {
    uint64_t bytes = 0;
    if (absl::SimpleAtoi(absl::StripAsciiWhitespace(ReadFile(absl::StrCat(mount, group, "/", file))), &bytes)) {
      limit = std::min(limit, bytes);
    }
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) return limit;
    group.resize(slash);
  }
}

// Lines of /proc/self/cgroup read `number:controllers:path`; v2 has no controllers.
uint64_t ControlGroupLimit(const std::string& root) {
  const std::string text = ReadFile(root + "/proc/self/cgroup");
  uint64_t limit = kNoLimit;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(fields[1], ',');
    if (fields[1].empty()) {
      limit = std::min(limit, GroupLimit(root + "/sys/fs/cgroup", fields[2], "memory.max"));
    } else if (std::find(controllers.begin(), controllers.end(), "memory") != controllers.end()) {
      limit = std::min(limit, GroupLimit(root + "/sys/fs/cgroup/memory", fields[2], "memory.limit_in_bytes"));
    }
  }
  return limit;
}

}  // namespace

absl::StatusOr<uint64_t> MemoryLimitBytes(const std::string& root) {
  const uint64_t limit = std::min(MachineMemory(root), ControlGroupLimit(root));
  if (limit == kNoLimit) return absl::NotFoundError("neither /proc/meminfo nor a control group says how much memory");
  return limit;
}

}  // namespace quarry::server
