// What doctor asks of a machine: one function a check.
#ifndef QUARRY_TOOLS_QUARRYCTL_DOCTOR_CHECK_H_
#define QUARRY_TOOLS_QUARRYCTL_DOCTOR_CHECK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tools/quarryctl/doctor/host.h"

namespace quarry::ctl {

// kWarn: something works less well, or not at all but Quarry has another way. kBad: quarryd
// will not start, or not work.
enum class CheckState : uint8_t { kOk, kWarn, kBad };
std::string Name(CheckState state);

struct CheckResult {
  std::string name;
  CheckState state = CheckState::kOk;
  std::string finding;
  std::string advice;  // empty when ok
};

// memory_checks.cc
CheckResult CheckLockedMemory(const Host& host);
CheckResult CheckTransparentHugePages(const Host& host);
CheckResult CheckReservedHugePages(const Host& host);
CheckResult CheckSharedMemory(const Host& host);
CheckResult CheckNuma(const Host& host);
// kernel_checks.cc
CheckResult CheckSeccomp(const Host& host);
CheckResult CheckIoUring(const Host& host);
CheckResult CheckAio(const Host& host);
CheckResult CheckProcessVm(const Host& host);
// network_checks.cc
CheckResult CheckRdma(const Host& host);
CheckResult CheckSocketBuffers(const Host& host);
// control_group_checks.cc
CheckResult CheckMemoryLimit(const Host& host);
CheckResult CheckCpuLimit(const Host& host);

// All of them, in the order above.
std::vector<CheckResult> RunChecks(const Host& host);

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_DOCTOR_CHECK_H_
