#include "tools/quarryctl/doctor/host.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace quarry::ctl {

std::optional<std::string> Host::Read(const std::string& path) const {
  std::ifstream in(root + path);
  if (!in.good()) return std::nullopt;
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (in.bad()) return std::nullopt;
  return std::string(absl::StripAsciiWhitespace(text));
}

std::vector<std::string> Host::List(const std::string& path) const {
  std::error_code error;
  std::vector<std::string> names;
  for (std::filesystem::directory_iterator entry(root + path, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<uint64_t> Host::ReadNumber(const std::string& path) const {
  const std::optional<std::string> text = Read(path);
  uint64_t number = 0;
  if (!text.has_value() || !absl::SimpleAtoi(*text, &number)) return std::nullopt;
  return number;
}

std::optional<uint64_t> Host::ReadField(const std::string& path, absl::string_view field) const {
  const std::optional<std::string> text = Read(path);
  if (!text.has_value()) return std::nullopt;
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    if (!absl::ConsumePrefix(&line, field)) continue;
    const std::vector<absl::string_view> words = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    uint64_t number = 0;
    if (!words.empty() && absl::SimpleAtoi(words.front(), &number)) return number;
  }
  return std::nullopt;
}

}  // namespace quarry::ctl
