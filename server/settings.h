// The table of quarryd's settings: each registered once, as flag, variable and file key.
#ifndef QUARRY_SERVER_SETTINGS_H_
#define QUARRY_SERVER_SETTINGS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/config.h"

namespace quarry::server {

struct Setting {
  enum class Kind : uint8_t { kValue, kList, kSwitch };

  std::string name;  // "max-lease": --max-lease, QUARRY_MAX_LEASE, max-lease = in the file
  Kind kind = Kind::kValue;
  std::string type;  // for --help: SIZE, TIME, ADDRESS, ...
  std::string help;  // with the default
  bool reloadable = false;
  // Checks and stores. One value, all values of a list, or nothing for a switch.
  std::function<absl::Status(const std::vector<std::string>&)> set;
};

// Every setting there is, storing into `config`.
std::vector<Setting> Settings(ServerConfig* config);

// What is in force of a setting when nothing was given: its help says so.
std::string DefaultOf(const Setting& setting);

// QUARRY_ and the name in capitals.
std::string EnvironmentName(const std::string& setting);

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SETTINGS_H_
