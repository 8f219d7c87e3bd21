// The machine as the checks see it: files below a root, and what the kernel answers to a
// system call. Tests pass other ones.
#ifndef QUARRY_TOOLS_QUARRYCTL_DOCTOR_HOST_H_
#define QUARRY_TOOLS_QUARRYCTL_DOCTOR_HOST_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace quarry::ctl {

// System calls; those that give an int give 0 or an errno.
struct Probes {
  std::function<int()> io_uring;    // io_uring_setup
  std::function<int()> aio;         // io_setup
  std::function<int()> process_vm;  // process_vm_readv of a child's memory; EBADMSG: other bytes came
  // Size of the file system at a path; nullopt: there is none.
  std::function<std::optional<uint64_t>(const std::string& path)> file_system_bytes;
};
Probes RealProbes();

struct Host {
  std::string root;  // "" is the machine itself
  Probes probes;

  // Without blanks around it; nullopt: cannot be read.
  std::optional<std::string> Read(const std::string& path) const;
  // Sorted names in a folder; empty when there is none.
  std::vector<std::string> List(const std::string& path) const;
  // The whole number that `path` has, or that follows `field` in a line of it.
  std::optional<uint64_t> ReadNumber(const std::string& path) const;
  std::optional<uint64_t> ReadField(const std::string& path, absl::string_view field) const;
};

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_DOCTOR_HOST_H_
