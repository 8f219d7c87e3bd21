#include "tools/quarryctl/flags.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/units.h"
#include "tools/quarryctl/quantities.h"

namespace quarry::ctl {
namespace {

absl::StatusOr<uint64_t> ParseNumber(const std::string& text) {
  uint64_t number = 0;
  if (absl::SimpleAtoi(text, &number)) return number;
  return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not a whole number from 0"));
}

template <typename T>
void Store(const std::string& flag, const absl::StatusOr<T>& parsed, T* value) {
  if (!parsed.ok()) throw CLI::ValidationError(flag, std::string(parsed.status().message()));
  *value = *parsed;
}

// A flag whose values have an order: `parse` and `format` are of its unit.
template <typename T, typename Parse, typename Format>
CLI::Option* AddBounded(CLI::App* app, const std::string& flag, T* value, const std::string& help, T least, T most,
                        Parse parse, Format format) {
  const auto store = [=](const std::string& text) {
    T given{};
    Store<T>(flag, parse(text), &given);
    if (given < least) throw CLI::ValidationError(flag, absl::StrCat(text, " is below the least, ", format(least)));
    if (given > most) throw CLI::ValidationError(flag, absl::StrCat(text, " is above the most, ", format(most)));
    *value = given;
  };
  CLI::Option* option = app->add_option_function<std::string>(flag, store, help);
  if (*value != 0) option->default_str(format(*value));
  return option;
}

}  // namespace

CLI::Option* AddText(CLI::App* app, const std::string& flag, std::string* value, const std::string& help,
                     std::function<absl::Status(const std::string&)> check) {
  const auto store = [flag, value, check = std::move(check)](const std::string& text) {
    if (check != nullptr) {
      if (const absl::Status status = check(text); !status.ok()) {
        throw CLI::ValidationError(flag, std::string(status.message()));
      }
    }
    *value = text;
  };
  return app->add_option_function<std::string>(flag, store, help)->default_str(*value);
}

CLI::Option* AddFile(CLI::App* app, const std::string& flag, std::string* path, const std::string& help) {
  return AddText(app, flag, path, help)->type_name("FILE");
}

CLI::Option* AddChoice(CLI::App* app, const std::string& flag, std::string* value, const std::string& help,
                       std::vector<std::string> choices) {
  return AddText(app, flag, value, help)->check(CLI::IsMember(std::move(choices)));
}

CLI::Option* AddNumber(CLI::App* app, const std::string& flag, uint64_t* value, const std::string& help, uint64_t least,
                       uint64_t most) {
  return AddBounded(app, flag, value, help, least, most, ParseNumber, [](uint64_t n) { return absl::StrCat(n); })
      ->type_name("N");
}

CLI::Option* AddSize(CLI::App* app, const std::string& flag, uint64_t* bytes, const std::string& help, uint64_t least,
                     uint64_t most) {
  return AddBounded(
             app, flag, bytes, help, least, most, [](const std::string& text) { return ParseBytes(text); }, FormatBytes)
      ->type_name("SIZE");
}

CLI::Option* AddDuration(CLI::App* app, const std::string& flag, int64_t* ns, const std::string& help, int64_t least,
                         int64_t most) {
  return AddBounded(
             app, flag, ns, help, least, most, [](const std::string& text) { return ParseDuration(text); },
             FormatDuration)
      ->type_name("TIME");
}

CLI::Option* AddByteRate(CLI::App* app, const std::string& flag, double* bytes_per_second, const std::string& help) {
  const auto store = [=](const std::string& text) { Store(flag, ParseByteRate(text), bytes_per_second); };
  return app->add_option_function<std::string>(flag, store, help)->type_name("SIZE/s");
}

CLI::Option* AddQuantity(CLI::App* app, const std::string& flag, double* value, const std::string& help) {
  const auto store = [=](const std::string& text) { Store(flag, ParseQuantity(text), value); };
  return app->add_option_function<std::string>(flag, store, help)->type_name("N");
}

}  // namespace quarry::ctl
