// quarryctl doctor: whether this machine suits Quarry, and what to do where it does not.
#ifndef QUARRY_TOOLS_QUARRYCTL_DOCTOR_DOCTOR_COMMAND_H_
#define QUARRY_TOOLS_QUARRYCTL_DOCTOR_DOCTOR_COMMAND_H_

#include <string>

#include "tools/quarryctl/command.h"
#include "tools/quarryctl/doctor/host.h"

namespace quarry::ctl {

// Exit code kNo when a check is bad; warnings leave it at kOk.
class DoctorCommand : public Command {
 public:
  DoctorCommand() : DoctorCommand({.root = "", .probes = RealProbes()}) {}
  explicit DoctorCommand(Host host) : host_(std::move(host)) {}

  std::string name() const override { return "doctor"; }
  std::string help() const override { return "Checks this machine: limits, memory, disks' and network's system calls"; }
  void AddFlags(CLI::App*) override {}
  absl::StatusOr<ExitCode> Run(const Context& context) override;

 private:
  Host host_;
};

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_DOCTOR_DOCTOR_COMMAND_H_
