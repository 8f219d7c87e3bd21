// Block hashes as arguments: hex on the command line, or one a line in a file.
#ifndef QUARRY_TOOLS_QUARRYCTL_NODE_HASHES_H_
#define QUARRY_TOOLS_QUARRYCTL_NODE_HASHES_H_

#include <CLI/App.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/quarryctl/node/connection.h"

namespace quarry::ctl {

// The bytes of 2 to 128 hex digits. InvalidArgument quotes the text.
absl::StatusOr<std::string> ParseHash(absl::string_view hex);
std::string ToHex(absl::string_view bytes);

void AddNamespace(CLI::App* app, std::string* ns);
CLI::Option* AddHash(CLI::App* app, const std::string& flag, std::string* hash, const std::string& help);
void AddGroup(CLI::App* app, uint64_t* group);
void AddShard(CLI::App* app, uint64_t* shard);

// NAMESPACE HASH... [--hashes-file FILE] [--group N]
class BlocksArguments {
 public:
  void AddTo(CLI::App* app);

  // Those of the command line, then those of the file, as bytes; at least one.
  absl::StatusOr<std::vector<std::string>> Hashes() const;

  // A request with `tenant`, `namespace`, `group` and `hashes`.
  template <typename Request>
  absl::StatusOr<Request> MakeRequest(const Connection& connection) const {
    absl::StatusOr<std::vector<std::string>> hashes = Hashes();
    if (!hashes.ok()) return hashes.status();
    auto request = connection.About<Request>(ns_);
    request.set_group(group());
    for (std::string& hash : *hashes) request.add_hashes(std::move(hash));
    return request;
  }

  // The answer to such a request: Ask(connection, &v1::Cache::Stub::Lookup).
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Ask(Connection* connection,
                               grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*)) const {
    const absl::StatusOr<Request> request = MakeRequest<Request>(*connection);
    if (!request.ok()) return request.status();
    return connection->Call(method, *request);
  }

  const std::string& ns() const { return ns_; }
  uint32_t group() const { return static_cast<uint32_t>(group_); }

 private:
  std::string ns_;
  std::vector<std::string> hex_;
  std::string file_;
  uint64_t group_ = 0;
};

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_NODE_HASHES_H_
