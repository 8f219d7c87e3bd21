#include "client/options.h"

#include <algorithm>
#include <cerrno>
#include <initializer_list>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/net/socket.h"

namespace quarry {
namespace {

absl::Status CheckBetween(absl::string_view field, uint64_t value, uint64_t low, uint64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", low, " to ", high, ", got ", value));
}

absl::Status CheckOneOf(absl::string_view field, absl::string_view value,
                        std::initializer_list<absl::string_view> values) {
  if (std::find(values.begin(), values.end(), value) != values.end()) return absl::OkStatus();
  const absl::Span<const absl::string_view> all(values.begin(), values.size());
  return absl::InvalidArgumentError(absl::StrCat(field, ": '", absl::StrJoin(all.first(all.size() - 1), "', '"),
                                                 "' or '", all.back(), "', got '", value, "'"));
}

absl::Status CheckServer(const std::string& server) {
  if (absl::StartsWith(server, "unix:")) return absl::OkStatus();
  if (auto address = ParseHostPort(server); !address.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("server: ", absl::string_view(address.status().message())));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const ClientOptions& options) {
  constexpr uint32_t kMost = UINT32_MAX;
  constexpr uint64_t kLeastStagingBytes = uint64_t{1} << 20;
  constexpr uint64_t kMostStagingBytes = uint64_t{64} << 30;
  for (absl::Status status : {
           CheckOneOf("transport", options.transport, {"auto", "tcp", "shm", "ucx"}),
           CheckOneOf("ucx_rma", options.ucx_rma, {"auto", "never", "always"}),
           CheckServer(options.server),
           CheckBetween("client_name bytes", options.client_name.size(), 0, kMaxClientNameBytes),
           CheckBetween("data_streams", options.data_streams, 1, kMaxDataStreams),
           CheckBetween("io_threads", options.io_threads, 1, kMaxIoThreads),
           CheckBetween("connect_timeout_ms", options.connect_timeout_ms, 1, kMost),
           CheckBetween("default_deadline_ms", options.default_deadline_ms, 1, kMost),
           CheckBetween("backoff_min_ms", options.backoff_min_ms, 1, kMost),
           CheckBetween("backoff_max_ms", options.backoff_max_ms, options.backoff_min_ms, kMost),
           CheckBetween("gpu_staging_bytes", options.gpu_staging_bytes, kLeastStagingBytes, kMostStagingBytes),
       }) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

std::string ChosenClientName(const ClientOptions& options) {
  std::string name = options.client_name.empty() ? program_invocation_short_name : options.client_name;
  if (name.size() > kMaxClientNameBytes) name.resize(kMaxClientNameBytes);
  return name;
}

}  // namespace quarry
