#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/units.h"
#include "tools/quarryctl/doctor/check.h"

namespace quarry::ctl {
namespace {

constexpr char kMeminfo[] = "/proc/meminfo";
constexpr uint64_t kContainersShmBytes = 64 << 20;  // the default of container runtimes

// The soft limit, as /proc/self/limits has it: "Max locked memory  8388608  8388608  bytes".
std::string LockedMemoryLimit(const Host& host) {
  for (absl::string_view line : absl::StrSplit(host.Read("/proc/self/limits").value_or(""), '\n')) {
    if (!absl::ConsumePrefix(&line, "Max locked memory")) continue;
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (!words.empty()) return words.front();
  }
  return "";
}

// "0-1,4" has three.
uint64_t CountNodes(const std::string& list) {
  uint64_t nodes = 0;
  for (absl::string_view range : absl::StrSplit(list, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(range, '-');
    uint64_t first = 0;
    uint64_t last = 0;
    if (!absl::SimpleAtoi(ends.front(), &first) || !absl::SimpleAtoi(ends.back(), &last) || last < first) return 0;
    nodes += last - first + 1;
  }
  return nodes;
}

}  // namespace

CheckResult CheckLockedMemory(const Host& host) {
  CheckResult result{.name = "memlock"};
  const std::string limit = LockedMemoryLimit(host);
  uint64_t bytes = 0;
  if (limit == "unlimited") {
    result.finding = "memory may be locked without limit";
    return result;
  }
  result.state = CheckState::kWarn;
  result.finding = absl::SimpleAtoi(limit, &bytes) ? absl::StrCat("at most ", FormatBytes(bytes), " may be locked")
                                                   : "/proc/self/limits does not say how much may be locked";
  result.advice =
      "RDMA and registered io_uring buffers lock memory, TCP does not: LimitMEMLOCK=infinity in the systemd unit, "
      "--ulimit memlock=-1 of docker, ulimit -l unlimited in a shell";
  return result;
}

CheckResult CheckTransparentHugePages(const Host& host) {
  CheckResult result{.name = "transparent huge pages"};
  const std::string modes = host.Read("/sys/kernel/mm/transparent_hugepage/enabled").value_or("");
  const size_t open = modes.find('[');
  const size_t close = modes.find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) {
    result.state = CheckState::kWarn;
    result.finding = "the kernel has none, or does not show them";
    result.advice = "the arena then has pages of 4KiB: more page faults at the start and more TLB misses";
    return result;
  }
  const std::string mode = modes.substr(open + 1, close - open - 1);
  result.finding = absl::StrCat("mode ", mode);
  if (mode == "never") {
    result.state = CheckState::kWarn;
    result.advice = "let the arena have them: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
  }
  return result;
}

CheckResult CheckReservedHugePages(const Host& host) {
  CheckResult result{.name = "reserved huge pages"};
  const uint64_t total = host.ReadField(kMeminfo, "HugePages_Total:").value_or(0);
  const uint64_t unused = host.ReadField(kMeminfo, "HugePages_Free:").value_or(0);
  const uint64_t page_bytes = host.ReadField(kMeminfo, "Hugepagesize:").value_or(0) << 10;
  if (total == 0) {
    result.finding = "none; the arena uses transparent ones";
    return result;
  }
  result.finding = absl::StrCat(total, " of ", FormatBytes(page_bytes), ", ", unused, " of them unused");
  if (unused > 0) {
    result.state = CheckState::kWarn;
    result.advice = absl::StrCat(FormatBytes(unused * page_bytes),
                                 " that quarryd cannot use, as it uses transparent ones: lower vm.nr_hugepages unless "
                                 "another program needs them");
  }
  return result;
}

CheckResult CheckSharedMemory(const Host& host) {
  CheckResult result{.name = "/dev/shm"};
  const std::optional<uint64_t> bytes = host.probes.file_system_bytes(host.root + "/dev/shm");
  if (bytes.has_value() && *bytes > kContainersShmBytes) {
    result.finding = FormatBytes(*bytes);
    return result;
  }
  result.state = CheckState::kWarn;
  result.finding = bytes.has_value() ? FormatBytes(*bytes) : "not there";
  result.advice =
      "engines on this host that share memory need room: --shm-size of docker; on Kubernetes an emptyDir of medium "
      "Memory at /dev/shm";
  return result;
}

CheckResult CheckNuma(const Host& host) {
  CheckResult result{.name = "NUMA"};
  const std::optional<std::string> online = host.Read("/sys/devices/system/node/online");
  const uint64_t nodes = online.has_value() ? CountNodes(*online) : 0;
  if (nodes <= 1) {
    result.finding = nodes == 1 ? "1 node" : "the kernel shows no nodes";
    return result;
  }
  result.state = CheckState::kWarn;
  result.finding = absl::StrCat(nodes, " nodes: ", *online);
  result.advice =
      "memory of another node is slower: run quarryd on the network card's node, numactl --cpunodebind=N --membind=N "
      "(/sys/class/net/DEVICE/device/numa_node has N)";
  return result;
}

}  // namespace quarry::ctl
