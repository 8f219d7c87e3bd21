#include "tools/quarryctl/doctor/doctor_command.h"

#include "tools/quarryctl/doctor/check.h"

namespace quarry::ctl {

std::string Name(CheckState state) {
  switch (state) {
    case CheckState::kOk:
      return "ok";
    case CheckState::kWarn:
      return "warn";
    case CheckState::kBad:
      return "bad";
  }
  return "";
}

std::vector<CheckResult> RunChecks(const Host& host) {
  std::vector<CheckResult> results;
  for (const auto check : {CheckLockedMemory, CheckTransparentHugePages, CheckReservedHugePages, CheckSharedMemory,
                           CheckNuma, CheckSeccomp, CheckIoUring, CheckAio, CheckProcessVm, CheckRdma,
                           CheckSocketBuffers, CheckMemoryLimit, CheckCpuLimit}) {
    results.push_back(check(host));
  }
  return results;
}

absl::StatusOr<ExitCode> DoctorCommand::Run(const Context& context) {
  Table table({{"name", "CHECK"}, {"state", "STATE"}, {"finding", "FINDING"}, {"advice", "", /*below=*/true}});
  bool healthy = true;
  for (const CheckResult& result : RunChecks(host_)) {
    if (result.state == CheckState::kBad) healthy = false;
    table.AddRow({Value::Text(result.name), Value::Text(Name(result.state)), Value::Text(result.finding),
                  Value::Text(result.advice)});
  }
  Report report;
  report.Add("checks", std::move(table));
  report.Add("healthy", "healthy", Value::Flag(healthy));
  context.Print(report);
  return healthy ? ExitCode::kOk : ExitCode::kNo;
}

}  // namespace quarry::ctl
