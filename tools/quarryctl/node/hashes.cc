#include "tools/quarryctl/node/hashes.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tools/quarryctl/flags.h"

namespace quarry::ctl {
namespace {

constexpr size_t kMaxHashes = 65'536;  // of one call
constexpr size_t kMaxHashBytes = 64;
constexpr uint64_t kMaxGroup = 15;
constexpr uint64_t kMaxShard = 255;

absl::Status AppendHash(absl::string_view name, absl::string_view hex, std::vector<std::string>* hashes) {
  absl::StatusOr<std::string> hash = ParseHash(hex);
  if (!hash.ok()) return absl::InvalidArgumentError(absl::StrCat(name, ": ", hash.status().message()));
  if (hashes->size() == kMaxHashes) {
    return absl::InvalidArgumentError(absl::StrCat("HASH: more than ", kMaxHashes, " in one call"));
  }
  hashes->push_back(*std::move(hash));
  return absl::OkStatus();
}

absl::Status AppendLines(std::istream& input, const std::string& path, std::vector<std::string>* hashes) {
  size_t number = 0;
  for (std::string line; std::getline(input, line);) {
    ++number;
    const absl::string_view hex = absl::StripAsciiWhitespace(line);
    if (hex.empty()) continue;
    absl::Status status = AppendHash(absl::StrCat("--hashes-file: ", path, ":", number), hex, hashes);
    if (!status.ok()) return status;
  }
  if (input.bad()) return absl::InvalidArgumentError(absl::StrCat("--hashes-file: ", path, " cannot be read"));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ParseHash(absl::string_view hex) {
  const bool digits = std::all_of(hex.begin(), hex.end(), [](unsigned char c) { return absl::ascii_isxdigit(c); });
  if (!digits || hex.empty() || hex.size() % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", absl::CHexEscape(hex.substr(0, 2 * kMaxHashBytes)), "\" is not hex, two digits a byte"));
  }
  if (hex.size() > 2 * kMaxHashBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(hex.size() / 2, " bytes, a hash has at most ", kMaxHashBytes, " bytes"));
  }
  return absl::HexStringToBytes(hex);
}

std::string ToHex(absl::string_view bytes) { return absl::BytesToHexString(bytes); }

void AddNamespace(CLI::App* app, std::string* ns) {
  AddText(app, "NAMESPACE", ns, "Name of a namespace")->type_name("")->required();
}

CLI::Option* AddHash(CLI::App* app, const std::string& flag, std::string* hash, const std::string& help) {
  const auto store = [flag, hash](const std::string& text) {
    absl::StatusOr<std::string> parsed = ParseHash(text);
    if (!parsed.ok()) throw CLI::ValidationError(flag, std::string(parsed.status().message()));
    *hash = *std::move(parsed);
  };
  return app->add_option_function<std::string>(flag, store, help)->type_name("HEX");
}

void AddGroup(CLI::App* app, uint64_t* group) {
  AddNumber(app, "--group", group, "Group of the model's spec, from 0", 0, kMaxGroup);
}

void AddShard(CLI::App* app, uint64_t* shard) {
  AddNumber(app, "--shard", shard, "Shard of the block, from 0", 0, kMaxShard);
}

void BlocksArguments::AddTo(CLI::App* app) {
  AddNamespace(app, &ns_);
  app->add_option("HASH", hex_, "Block hashes in hex, those of a prompt from its start")->type_name("");
  AddFile(app, "--hashes-file", &file_, "File with one hash a line; - is standard input");
  AddGroup(app, &group_);
}

absl::StatusOr<std::vector<std::string>> BlocksArguments::Hashes() const {
  std::vector<std::string> hashes;
  for (size_t i = 0; i < hex_.size(); ++i) {
    if (absl::Status status = AppendHash(absl::StrCat("HASH ", i + 1), hex_[i], &hashes); !status.ok()) return status;
  }
  absl::Status status;
  if (file_ == "-") {
    status = AppendLines(std::cin, "-", &hashes);
  } else if (!file_.empty()) {
    std::ifstream input(file_);
    if (!input) {
      return absl::InvalidArgumentError(absl::StrCat("--hashes-file: ", file_, ": ", std::strerror(errno)));
    }
    status = AppendLines(input, file_, &hashes);
  }
  if (!status.ok()) return status;
  if (hashes.empty()) return absl::InvalidArgumentError("HASH: none given, nor in a --hashes-file");
  return hashes;
}

}  // namespace quarry::ctl
