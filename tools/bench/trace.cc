#include "tools/bench/trace.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace quarry::bench {
namespace {

absl::StatusOr<uint64_t> Unsigned(const nlohmann::json& object, const char* field) {
  const auto it = object.find(field);
  if (it == object.end()) return absl::InvalidArgumentError(absl::StrCat("no \"", field, "\""));
  if (!it->is_number_unsigned()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", field, "\" is not a whole number from 0"));
  }
  return it->get<uint64_t>();
}

absl::StatusOr<std::vector<uint64_t>> Blocks(const nlohmann::json& object) {
  const auto it = object.find("hash_ids");
  if (it == object.end() || !it->is_array() || it->empty()) {
    return absl::InvalidArgumentError("\"hash_ids\" is not a list with at least one id");
  }
  if (it->size() > kMaxTraceBlocks) {
    return absl::InvalidArgumentError(absl::StrCat("\"hash_ids\" has more than ", kMaxTraceBlocks, " ids"));
  }
  std::vector<uint64_t> blocks;
  blocks.reserve(it->size());
  for (const nlohmann::json& id : *it) {
    if (!id.is_number_unsigned()) return absl::InvalidArgumentError("\"hash_ids\" has an id that is no number from 0");
    blocks.push_back(id.get<uint64_t>());
  }
  return blocks;
}

absl::StatusOr<TraceRequest> ParseLine(const std::string& line) {
  const nlohmann::json object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return absl::InvalidArgumentError("not a JSON object");
  TraceRequest request;
  auto timestamp = Unsigned(object, "timestamp");
  if (!timestamp.ok()) return timestamp.status();
  auto input = Unsigned(object, "input_length");
  if (!input.ok()) return input.status();
  auto blocks = Blocks(object);
  if (!blocks.ok()) return blocks.status();
  request.timestamp_ms = *timestamp;
  request.input_tokens = *input;
  request.blocks = *std::move(blocks);
  const uint64_t held = request.blocks.size() * uint64_t{kTraceBlockTokens};
  if (request.input_tokens > held || request.input_tokens + kTraceBlockTokens <= held) {
    return absl::InvalidArgumentError(absl::StrCat("\"input_length\" ", request.input_tokens, " does not fit ",
                                                   request.blocks.size(), " blocks of ", kTraceBlockTokens, " tokens"));
  }
  return request;
}

}  // namespace

absl::StatusOr<std::vector<TraceRequest>> ParseTrace(std::istream& in, size_t max_requests) {
  if (max_requests == 0) max_requests = kMaxTraceRequests;
  std::vector<TraceRequest> requests;
  std::string line;
  for (size_t number = 1; requests.size() < max_requests && std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    auto request = ParseLine(line);
    if (!request.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", request.status().message()));
    }
    if (!requests.empty() && request->timestamp_ms < requests.back().timestamp_ms) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": \"timestamp\" goes backwards"));
    }
    requests.push_back(*std::move(request));
  }
  if (requests.empty()) return absl::InvalidArgumentError("no requests");
  return requests;
}

absl::StatusOr<std::vector<TraceRequest>> ReadTrace(const std::string& path, size_t max_requests) {
  std::ifstream in(path);
  if (!in) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  auto requests = ParseTrace(in, max_requests);
  if (!requests.ok()) return absl::InvalidArgumentError(absl::StrCat(path, ": ", requests.status().message()));
  return requests;
}

uint64_t TokensOf(const TraceRequest& request, uint64_t blocks) {
  return std::min(blocks * kTraceBlockTokens, request.input_tokens);
}

}  // namespace quarry::bench
