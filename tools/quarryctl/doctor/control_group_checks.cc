#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/units.h"
#include "tools/quarryctl/doctor/check.h"

namespace quarry::ctl {
namespace {

constexpr uint64_t kLeastMemoryBytes = 128 << 20;  // of quarryd's --memory
constexpr double kLeastCpus = 2;                   // for one control thread and two data threads

struct Group {
  std::string folder;
  bool v2 = false;
};

// The groups of this process that may limit `controller`, its own and all above it. Lines of
// /proc/self/cgroup read `number:controllers:path`; version 2 has no controllers.
std::vector<Group> Groups(const Host& host, const std::string& controller) {
  std::vector<Group> groups;
  for (absl::string_view line : absl::StrSplit(host.Read("/proc/self/cgroup").value_or(""), '\n')) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const bool v2 = fields[1].empty();
    const std::vector<std::string> controllers = absl::StrSplit(fields[1], ',');
    if (!v2 && std::find(controllers.begin(), controllers.end(), controller) == controllers.end()) continue;
    const std::string mount = v2 ? "/sys/fs/cgroup" : absl::StrCat("/sys/fs/cgroup/", controller);
    for (std::string path = fields[2];; path.resize(path.rfind('/'))) {
      groups.push_back({absl::StrCat(mount, path), v2});
      if (path.rfind('/') == std::string::npos) break;
    }
  }
  return groups;
}

// CPUs that the group may use at a time; nullopt: as many as there are.
std::optional<double> CpuLimit(const Host& host, const Group& group) {
  double quota = 0;
  double period = 0;
  if (group.v2) {
    // "50000 100000", or "max 100000"
    const std::string text = host.Read(group.folder + "/cpu.max").value_or("");
    const std::vector<std::string> words = absl::StrSplit(text, ' ');
    if (words.size() != 2 || !absl::SimpleAtod(words[0], &quota) || !absl::SimpleAtod(words[1], &period)) {
      return std::nullopt;
    }
  } else {
    quota = static_cast<double>(host.ReadNumber(group.folder + "/cpu.cfs_quota_us").value_or(0));  // -1: no limit
    period = static_cast<double>(host.ReadNumber(group.folder + "/cpu.cfs_period_us").value_or(0));
  }
  if (quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

}  // namespace

CheckResult CheckMemoryLimit(const Host& host) {
  CheckResult result{.name = "memory limit"};
  const uint64_t machine = host.ReadField("/proc/meminfo", "MemTotal:").value_or(0) << 10;
  std::optional<uint64_t> limit;
  for (const Group& group : Groups(host, "memory")) {
    const std::optional<uint64_t> own =
        host.ReadNumber(group.folder + (group.v2 ? "/memory.max" : "/memory.limit_in_bytes"));
    if (own.has_value()) limit = std::min(limit.value_or(*own), *own);
  }
  // Version 1 writes "no limit" as a number beyond any machine.
  const bool limited = limit.has_value() && (machine == 0 || *limit < machine);
  if (!limited && machine == 0) {
    result.state = CheckState::kWarn;
    result.finding = "neither /proc/meminfo nor a control group says how much memory there is";
    result.advice = "give quarryd its --memory";
    return result;
  }
  const uint64_t usable = limited ? *limit : machine;
  result.finding = limited ? absl::StrCat(FormatBytes(*limit), " by control group, of the machine's ",
                                          machine == 0 ? "unknown size" : FormatBytes(machine))
                           : absl::StrCat("none; the machine has ", FormatBytes(machine));
  if (usable < kLeastMemoryBytes) {
    result.state = CheckState::kBad;
    result.advice = absl::StrCat("quarryd takes at least ", FormatBytes(kLeastMemoryBytes), ": raise the limit");
  }
  return result;
}

CheckResult CheckCpuLimit(const Host& host) {
  CheckResult result{.name = "CPU limit"};
  std::optional<double> limit;
  for (const Group& group : Groups(host, "cpu")) {
    const std::optional<double> own = CpuLimit(host, group);
    if (own.has_value()) limit = std::min(limit.value_or(*own), *own);
  }
  result.finding = limit.has_value() ? absl::StrFormat("%.4g CPUs by control group", *limit) : "none";
  if (limit.has_value() && *limit < kLeastCpus) {
    result.state = CheckState::kWarn;
    result.advice = absl::StrFormat(
        "quarryd has a control thread and two data threads, which are stopped in mid-transfer when the quota is used "
        "up: give it at least %g CPUs",
        kLeastCpus);
  }
  return result;
}

}  // namespace quarry::ctl
