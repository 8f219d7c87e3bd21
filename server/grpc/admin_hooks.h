// What the Admin service asks of the process around it.
#ifndef QUARRY_SERVER_GRPC_ADMIN_HOOKS_H_
#define QUARRY_SERVER_GRPC_ADMIN_HOOKS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace quarry::server {

// What only the process around the service knows or can do. Called on any thread.
struct AdminHooks {
  struct ConfigValue {
    std::string name;
    std::string value;
    bool given = false;
    bool reloadable = false;
    std::string help;
  };
  struct Part {
    std::string name;
    bool healthy = true;
    std::string detail;  // a sentence
  };
  struct Health {
    bool ready = true;  // for new clients
    std::vector<Part> parts;
  };

  std::function<std::vector<ConfigValue>()> config;
  std::function<void()> drain;
  // Returns the level before. InvalidArgument lists the levels.
  std::function<absl::StatusOr<std::string>(const std::string& level)> set_log_level;
  std::function<Health()> health;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_GRPC_ADMIN_HOOKS_H_
