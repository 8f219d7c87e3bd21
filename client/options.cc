#include "client/options.h"

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/net/socket.h"

namespace quarry {
namespace {

absl::Status CheckBetween(absl::string_view field, uint64_t value, uint64_t low, uint64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", low, " to ", high, ", got ", value));
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
  constexpr absl::string_view kTransports[] = {"auto", "tcp", "shm", "ucx"};
  if (std::find(std::begin(kTransports), std::end(kTransports), options.transport) == std::end(kTransports)) {
    return absl::InvalidArgumentError(
        absl::StrCat("transport: 'auto', 'tcp', 'shm' or 'ucx', got '", options.transport, "'"));
  }
  constexpr absl::string_view kRma[] = {"auto", "never", "always"};
  if (std::find(std::begin(kRma), std::end(kRma), options.ucx_rma) == std::end(kRma)) {
    return absl::InvalidArgumentError(
        absl::StrCat("ucx_rma: 'auto', 'never' or 'always', got '", options.ucx_rma, "'"));
  }
  for (absl::Status status : {
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
