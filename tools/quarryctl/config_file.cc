#include "tools/quarryctl/config_file.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace quarry::ctl {
namespace {

constexpr char kConfigVariable[] = "QUARRY_CTL_CONFIG";
constexpr char kOpensTable[] = "++";  // CLI11's marks
constexpr char kClosesTable[] = "--";

const char* Environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value != nullptr && *value != '\0' ? value : nullptr;
}

// The command that a table's name leads to; null: none.
const CLI::App* FindCommand(const CLI::App& program, const std::vector<std::string>& path) {
  const CLI::App* found = &program;
  for (const std::string& name : path) {
    const CLI::App* next = nullptr;
    for (const CLI::App* command : found->get_subcommands([](const CLI::App*) { return true; })) {
      if (command->get_name() == name) next = command;
    }
    if (next == nullptr) return nullptr;
    found = next;
  }
  return found;
}

class SettingsFile : public CLI::ConfigBase {
 public:
  explicit SettingsFile(const CLI::App* program) : program_(program) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::vector<CLI::ConfigItem> kept;
    for (CLI::ConfigItem& item : ConfigBase::from_config(input)) {
      const CLI::App* command = FindCommand(*program_, item.parents);
      if (item.name == kOpensTable || item.name == kClosesTable) {
        if (command == nullptr) Unknown(absl::StrCat("[", absl::StrJoin(item.parents, "."), "]"));
        continue;
      }
      const CLI::Option* option = command == nullptr ? nullptr : command->get_option_no_throw("--" + item.name);
      if (option == nullptr || !option->get_configurable()) Unknown(item.fullname());
      // CLI11 by itself prefers the file, which a container could then not override.
      if (Environment(option->get_envname()) == nullptr) kept.push_back(std::move(item));
    }
    return kept;
  }

 private:
  [[noreturn]] static void Unknown(const std::string& name) {
    throw CLI::ConfigError(absl::StrCat("--config: unknown setting \"", name, "\""));
  }

  const CLI::App* program_;
};

void AddVariables(CLI::App* app, const std::string& prefix) {
  for (CLI::Option* option : app->get_options()) {
    if (!option->get_configurable() || option->get_lnames().empty()) continue;
    option->envname(
        absl::AsciiStrToUpper(absl::StrReplaceAll(absl::StrCat(prefix, option->get_lnames().front()), {{"-", "_"}})));
  }
  for (CLI::App* command : app->get_subcommands([](const CLI::App*) { return true; })) {
    AddVariables(command, absl::StrCat(prefix, command->get_name(), "_"));
  }
}

}  // namespace

void AddConfiguration(CLI::App* program) {
  AddVariables(program, "QUARRY_");
  const char* file = Environment(kConfigVariable);
  program
      ->set_config("--config", file == nullptr ? "" : file, "TOML file with flags, one table a command",
                   file != nullptr)
      ->type_name("FILE");
  program->config_formatter(std::make_shared<SettingsFile>(program));
}

}  // namespace quarry::ctl
