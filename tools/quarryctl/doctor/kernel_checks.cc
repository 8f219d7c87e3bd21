#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tools/quarryctl/doctor/check.h"

namespace quarry::ctl {
namespace {

constexpr uint64_t kSeccompFilter = 2;  // of /proc/self/status

std::string Answer(const char* call, int error) {
  return error == 0 ? absl::StrCat(call, " works") : absl::StrCat(call, ": ", std::strerror(error));
}

}  // namespace

CheckResult CheckSeccomp(const Host& host) {
  CheckResult result{.name = "seccomp"};
  const std::optional<uint64_t> mode = host.ReadField("/proc/self/status", "Seccomp:");
  if (!mode.has_value()) {
    result.finding = "the kernel does not say";
  } else if (*mode != kSeccompFilter) {
    result.finding = "no filter";
  } else {
    result.finding = "a filter decides about system calls; the checks below ask it";
  }
  return result;
}

CheckResult CheckIoUring(const Host& host) {
  CheckResult result{.name = "io_uring"};
  const int error = host.probes.io_uring();
  result.finding = Answer("io_uring_setup", error);
  if (error == 0) return result;
  result.state = CheckState::kWarn;
  const std::optional<uint64_t> disabled = host.ReadNumber("/proc/sys/kernel/io_uring_disabled");
  if (error == EPERM && disabled.value_or(0) != 0) {
    result.advice = absl::StrCat("kernel.io_uring_disabled is ", *disabled, "; ");
  } else if (error == EPERM) {
    result.advice = "the default seccomp profile of container runtimes forbids it; ";
  } else if (error == ENOSYS) {
    result.advice = "the kernel has none; ";
  }
  result.advice += "disk IO goes by aio, which is nearly as fast";
  return result;
}

CheckResult CheckAio(const Host& host) {
  CheckResult result{.name = "aio"};
  const int error = host.probes.aio();
  result.finding = Answer("io_setup", error);
  if (error == 0) return result;
  result.state = CheckState::kWarn;
  result.advice = error == EAGAIN ? "all of fs.aio-max-nr is in use: raise it with sysctl"
                                  : "allow io_setup in the seccomp profile; else disk IO needs io_uring or threads";
  return result;
}

CheckResult CheckProcessVm(const Host& host) {
  CheckResult result{.name = "process_vm_readv"};
  const int error = host.probes.process_vm();
  const uint64_t scope = host.ReadNumber("/proc/sys/kernel/yama/ptrace_scope").value_or(0);
  result.finding = Answer("reading a child's memory", error);
  if (error != 0) {
    result.state = CheckState::kWarn;
    result.advice =
        "only memory that is shared or sent can be moved between processes of this host: allow process_vm_readv and "
        "process_vm_writev in the seccomp profile, or --cap-add SYS_PTRACE";
  } else if (scope > 0) {
    result.state = CheckState::kWarn;
    absl::StrAppend(&result.finding, ", but kernel.yama.ptrace_scope is ", scope);
    result.advice = "that of processes that are not children needs ptrace_scope 0 or the capability SYS_PTRACE";
  }
  return result;
}

}  // namespace quarry::ctl
