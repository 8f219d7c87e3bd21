#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/transport/tcp/stream.h"
#include "common/units.h"
#include "tools/quarryctl/doctor/check.h"

namespace quarry::ctl {
namespace {

constexpr char kDevices[] = "/sys/class/infiniband";
// What data connections ask for.
constexpr uint64_t kBufferBytes = transport::tcp::kSocketBufferBytes;

bool HasActivePort(const Host& host, const std::string& device) {
  const std::string ports = absl::StrCat(kDevices, "/", device, "/ports");
  for (const std::string& port : host.List(ports)) {
    // "4: ACTIVE"
    if (absl::StrContains(host.Read(absl::StrCat(ports, "/", port, "/state")).value_or(""), "ACTIVE")) return true;
  }
  return false;
}

}  // namespace

CheckResult CheckRdma(const Host& host) {
  CheckResult result{.name = "RDMA"};
  const std::vector<std::string> devices = host.List(kDevices);
  if (devices.empty()) {
    result.finding = "no devices; bytes go over TCP";
    return result;
  }
  std::vector<std::string> down;
  for (const std::string& device : devices) {
    if (!HasActivePort(host, device)) down.push_back(device);
  }
  result.finding = absl::StrCat(devices.size(), " devices: ", absl::StrJoin(devices, ", "));
  if (!down.empty()) {
    result.state = CheckState::kWarn;
    result.advice = absl::StrCat("no active port: ", absl::StrJoin(down, ", "), "; see cable, switch and ibstat");
  }
  return result;
}

CheckResult CheckSocketBuffers(const Host& host) {
  CheckResult result{.name = "socket buffers"};
  const std::optional<uint64_t> receive = host.ReadNumber("/proc/sys/net/core/rmem_max");
  const std::optional<uint64_t> send = host.ReadNumber("/proc/sys/net/core/wmem_max");
  if (!receive.has_value() || !send.has_value()) {
    result.state = CheckState::kWarn;
    result.finding = "net.core.rmem_max and wmem_max are not visible here";
    result.advice = absl::StrCat("see on the host that both are at least ", kBufferBytes);
    return result;
  }
  result.finding = absl::StrCat("receive up to ", FormatBytes(*receive), ", send up to ", FormatBytes(*send));
  if (*receive < kBufferBytes || *send < kBufferBytes) {
    result.state = CheckState::kWarn;
    result.advice =
        absl::StrCat("data connections ask for ", FormatBytes(kBufferBytes),
                     " each way: sysctl -w net.core.rmem_max=", kBufferBytes, " net.core.wmem_max=", kBufferBytes);
  }
  return result;
}

}  // namespace quarry::ctl
