#include "server/config.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/net/socket.h"
#include "common/units.h"
#include "server/memory_limit.h"
#include "server/settings.h"

namespace quarry::server {
namespace {

constexpr int kBadUsage = 2;
constexpr double kDefaultMemoryShare = 0.7;
constexpr double kReserveShare = 0.07;
constexpr double kSsdIndexShare = 0.05;
constexpr uint64_t kMinExtentsOfSsd = 8;
constexpr uint64_t kMinArenaBytes = 16 << 20;
constexpr double kCatalogShare = 0.01;
constexpr uint64_t kMinCatalogBytes = 16 << 20;
constexpr uint64_t kMaxCatalogBytes = 64 << 20;
constexpr uint64_t kMinReserveBytes = 64ull << 20;
constexpr char kConfigVariable[] = "QUARRY_CONFIG";

const char* Environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value != nullptr && *value != '\0' ? value : nullptr;
}

// TOML whose unknown keys are errors, and whose values give way to the environment:
// CLI11 by itself prefers the file, which a container could then not override.
class SettingsFile : public CLI::ConfigBase {
 public:
  explicit SettingsFile(const std::vector<Setting>* settings) : settings_(settings) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::vector<CLI::ConfigItem> kept;
    for (CLI::ConfigItem& item : ConfigBase::from_config(input)) {
      const bool known = item.parents.empty() && std::any_of(settings_->begin(), settings_->end(),
                                                             [&](const Setting& s) { return s.name == item.name; });
      if (!known) {
        const std::string name =
            item.name == "++" ? absl::StrCat("[", absl::StrJoin(item.parents, "."), "]") : item.fullname();
        throw CLI::ConfigError(absl::StrCat("--config: unknown setting \"", name, "\""));
      }
      if (Environment(EnvironmentName(item.name)) == nullptr) kept.push_back(std::move(item));
    }
    return kept;
  }

 private:
  const std::vector<Setting>* settings_;
};

absl::StatusOr<bool> IsOn(const std::string& value) {
  for (const char* on : {"true", "1", "on", "yes"}) {
    if (value == on) return true;
  }
  for (const char* off : {"false", "0", "off", "no"}) {
    if (value == off) return false;
  }
  return absl::InvalidArgumentError(absl::StrCat("\"", value, "\" is neither true nor false"));
}

CLI::Option* Register(const Setting& setting, CLI::App* app) {
  const std::string flag = "--" + setting.name;
  CLI::Option* option =
      setting.kind == Setting::Kind::kSwitch ? app->add_flag(flag, setting.help) : app->add_option(flag, setting.help);
  option->envname(EnvironmentName(setting.name));
  if (setting.kind != Setting::Kind::kSwitch) option->type_name(setting.type);
  if (setting.kind == Setting::Kind::kList) option->delimiter(',')->take_all()->allow_extra_args(false);
  return option;
}

absl::Status Apply(const Setting& setting, const CLI::Option& option, ServerConfig* config) {
  if (option.count() == 0) return absl::OkStatus();
  const std::vector<std::string>& values = option.results();
  config->given[setting.name] = absl::StrJoin(values, ",");
  absl::Status status;
  if (setting.kind == Setting::Kind::kSwitch) {
    const absl::StatusOr<bool> on = IsOn(values.front());
    status = on.ok() && *on ? setting.set(values) : on.status();
  } else {
    status = setting.set(values);
  }
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat("--", setting.name, ": ", status.message()));
}

CommandLine BadUsage(absl::string_view message) {
  return {std::nullopt, kBadUsage, absl::StrCat("quarryd: ", message, "\n")};
}

bool IsLoopback(const std::string& host) {
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  if (inet_pton(AF_INET6, host.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
  return host == "localhost";
}

absl::Status CheckAddresses(absl::string_view flag, const std::vector<std::string>& addresses) {
  for (const std::string& address : addresses) {
    const absl::StatusOr<HostPort> parsed = ParseHostPort(address);
    if (!parsed.ok()) return parsed.status();
    if (IsLoopback(parsed->host)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, ": ", address,
                     " is beyond loopback, and this version has no TLS and no tokens: it takes --insecure"));
  }
  return absl::OkStatus();
}

}  // namespace

CommandLine ParseCommandLine(int argc, const char* const* argv) {
  CommandLine result;
  ServerConfig config;
  const std::vector<Setting> settings = Settings(&config);
  CLI::App app("Quarry's cache server. Flags win over QUARRY_* variables, and these over the file.", "quarryd");
  app.set_version_flag("--version", "quarryd " QUARRY_VERSION);
  app.add_option("--check", result.check_dir, "Verify an --ssd-dir that no daemon has open, and exit")
      ->type_name("DIR");
  const char* file = Environment(kConfigVariable);
  app.set_config("--config", file == nullptr ? "" : file, "TOML file of settings", file != nullptr)
      ->type_name("FILE (Env:QUARRY_CONFIG)");
  app.config_formatter(std::make_shared<SettingsFile>(&settings));
  std::vector<CLI::Option*> options;
  for (const Setting& setting : settings) options.push_back(Register(setting, &app));
  try {
    app.parse(argc, argv);
  } catch (const CLI::FileError& error) {
    return BadUsage(absl::StrCat("--config: ", error.what()));
  } catch (const CLI::Success& success) {
    std::ostringstream text;
    result.exit_code = app.exit(success, text, text);
    result.output = text.str();
    return result;
  } catch (const CLI::ParseError& error) {
    return BadUsage(error.what());
  }
  for (size_t i = 0; i < settings.size(); ++i) {
    if (absl::Status status = Apply(settings[i], *options[i], &config); !status.ok()) return BadUsage(status.message());
  }
  if (absl::Status status = CheckExposure(config); !status.ok()) return BadUsage(status.message());
  if (absl::Status status = CheckSsd(config); !status.ok()) return BadUsage(status.message());
  result.config = std::move(config);
  return result;
}

bool IsReloadable(const std::string& name) {
  ServerConfig unused;
  for (const Setting& setting : Settings(&unused)) {
    if (setting.name == name) return setting.reloadable;
  }
  return false;
}

std::vector<std::string> ChangedSettings(const ServerConfig& before, const ServerConfig& after) {
  std::vector<std::string> changed;
  ServerConfig unused;
  for (const Setting& setting : Settings(&unused)) {
    const auto old_value = before.given.find(setting.name);
    const auto new_value = after.given.find(setting.name);
    const bool was_given = old_value != before.given.end();
    const bool is_given = new_value != after.given.end();
    if (was_given != is_given || (is_given && old_value->second != new_value->second)) changed.push_back(setting.name);
  }
  return changed;
}

absl::Status CheckExposure(const ServerConfig& config) {
  if (config.insecure) return absl::OkStatus();
  absl::Status status = CheckAddresses("listen-grpc", config.listen_grpc);
  if (status.ok()) status = CheckAddresses("listen-transfer", config.listen_transfer);
  if (status.ok()) status = CheckAddresses("listen-metrics", config.listen_metrics);
  return status;
}

absl::Status CheckSsd(const ServerConfig& config) {
  if (config.ssd_dirs.empty()) {
    if (config.ssd_bytes == 0) return absl::OkStatus();
    return absl::InvalidArgumentError("--ssd-size: without --ssd-dir");
  }
  if (config.ssd_bytes == 0) return absl::InvalidArgumentError("--ssd-dir: without --ssd-size");
  if (config.ssd_extent_bytes > config.ssd_bytes / kMinExtentsOfSsd) {
    return absl::InvalidArgumentError(absl::StrCat("--ssd-extent: ", FormatBytes(config.ssd_extent_bytes),
                                                   " is above the most, a ", kMinExtentsOfSsd, "th of --ssd-size"));
  }
  const absl::StatusOr<uint64_t> total = TotalMemory(config);
  if (!total.ok()) return total.status();
  if (PlanMemory(*total, static_cast<uint32_t>(config.ssd_dirs.size())).arena_bytes < kMinArenaBytes) {
    return absl::InvalidArgumentError(absl::StrCat("--memory: ", FormatBytes(*total), " leaves less than ",
                                                   FormatBytes(kMinArenaBytes), " beside the catalogs of ",
                                                   config.ssd_dirs.size(), " --ssd-dir"));
  }
  return absl::OkStatus();
}

MemoryPlan PlanMemory(uint64_t total_bytes, uint32_t ssds) {
  const auto share = [&](double of_total) {
    return static_cast<uint64_t>(static_cast<double>(total_bytes) * of_total);
  };
  MemoryPlan plan;
  plan.total_bytes = total_bytes;
  plan.reserve_bytes = std::min(total_bytes, std::max(share(kReserveShare), kMinReserveBytes));
  if (ssds != 0) {
    plan.ssd_index_bytes = share(kSsdIndexShare);
    plan.catalog_bytes = std::clamp(share(kCatalogShare), kMinCatalogBytes, kMaxCatalogBytes);
  }
  const uint64_t other = plan.reserve_bytes + plan.ssd_index_bytes + ssds * plan.catalog_bytes;
  plan.arena_bytes = total_bytes - std::min(total_bytes, other);
  return plan;
}

absl::StatusOr<uint64_t> TotalMemory(const ServerConfig& config) {
  if (config.memory_bytes != 0) return config.memory_bytes;
  const absl::StatusOr<uint64_t> limit = MemoryLimitBytes();
  if (!limit.ok()) return limit.status();
  const auto total = static_cast<uint64_t>(static_cast<double>(*limit) * kDefaultMemoryShare);
  if (total >= kMinMemoryBytes) return total;
  return absl::ResourceExhaustedError(
      absl::StrCat("the memory limit of ", *limit, " bytes leaves less than the least --memory, ", kMinMemoryBytes));
}

std::string SocketPath(const ServerConfig& config) {
  if (config.socket == "none") return "";
  if (config.socket != "auto") return config.socket;
  const char* runtime = Environment("XDG_RUNTIME_DIR");
  for (const char* folder : {"/run/quarry", runtime}) {
    if (folder != nullptr && access(folder, W_OK | X_OK) == 0) return absl::StrCat(folder, "/quarryd.sock");
  }
  return "";
}

}  // namespace quarry::server
