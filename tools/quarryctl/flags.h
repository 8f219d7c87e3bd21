// Flags with units and bounds. Each shows its default in --help and stores nothing unless
// given; a bad value is a CLI::ValidationError that names the flag and the bound.
#ifndef QUARRY_TOOLS_QUARRYCTL_FLAGS_H_
#define QUARRY_TOOLS_QUARRYCTL_FLAGS_H_

#include <CLI/App.hpp>
#include <CLI/Option.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace quarry::ctl {

// Where a flag has no default (`*value` is 0), --help shows none.

CLI::Option* AddText(CLI::App* app, const std::string& flag, std::string* value, const std::string& help,
                     std::function<absl::Status(const std::string&)> check = nullptr);
CLI::Option* AddFile(CLI::App* app, const std::string& flag, std::string* path, const std::string& help);
// One of `choices`, which completion offers. `flag` without dashes: a positional argument.
CLI::Option* AddChoice(CLI::App* app, const std::string& flag, std::string* value, const std::string& help,
                       std::vector<std::string> choices);
CLI::Option* AddNumber(CLI::App* app, const std::string& flag, uint64_t* value, const std::string& help, uint64_t least,
                       uint64_t most);
// "16KiB"; see common/units.h.
CLI::Option* AddSize(CLI::App* app, const std::string& flag, uint64_t* bytes, const std::string& help, uint64_t least,
                     uint64_t most);
// "250ms"; see common/units.h.
CLI::Option* AddDuration(CLI::App* app, const std::string& flag, int64_t* ns, const std::string& help, int64_t least,
                         int64_t most);
// "24GB/s", "400Gbit/s", "312.5MiB/s".
CLI::Option* AddByteRate(CLI::App* app, const std::string& flag, double* bytes_per_second, const std::string& help);
// A number above 0: "20000", "1.4e15", "70B", "989T"; suffixes k, M, B or G, T, P, E.
CLI::Option* AddQuantity(CLI::App* app, const std::string& flag, double* value, const std::string& help);

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_FLAGS_H_
