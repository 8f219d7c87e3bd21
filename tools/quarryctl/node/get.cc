// quarryctl get: a shard's payload, checked, to a file or standard output.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/quarryctl/flags.h"
#include "tools/quarryctl/node/commands.h"
#include "tools/quarryctl/node/connection.h"
#include "tools/quarryctl/node/get_shards.h"
#include "tools/quarryctl/node/hashes.h"
#include "tools/quarryctl/node/names.h"

namespace quarry::ctl {
namespace {

class GetCommand : public NodeCommand {
 public:
  std::string name() const override { return "get"; }
  std::string help() const override { return "Fetches the payload of a block's shard"; }
  void AddFlags(CLI::App* app) override {
    AddNamespace(app, &ns_);
    AddHash(app, "HASH", &hash_, "Hash of the block")->required();
    AddFile(app, "--output,-o", &output_, "File to write; - is standard output")->required();
    AddGroup(app, &group_);
    AddShard(app, &shard_);
  }

 protected:
  absl::StatusOr<ExitCode> Ask(Connection* connection, const Context& context) override {
    const absl::StatusOr<std::string> payload = Fetch(connection);
    if (!payload.ok()) return payload.status();
    if (output_ == "-") {
      context.out.write(payload->data(), static_cast<std::streamsize>(payload->size())).flush();
      return context.out ? absl::StatusOr<ExitCode>(ExitCode::kOk)
                         : absl::UnknownError("standard output cannot be written");
    }
    std::ofstream file(output_, std::ios::binary | std::ios::trunc);
    file.write(payload->data(), static_cast<std::streamsize>(payload->size()));
    file.close();
    if (!file) return absl::InvalidArgumentError(absl::StrCat("--output: ", output_, ": ", std::strerror(errno)));
    Report report;
    report.Add("file", "file", Value::Text(output_));
    report.Add("bytes", "bytes", Value::Count(payload->size()));
    context.Print(report);
    return ExitCode::kOk;
  }

 private:
  absl::StatusOr<std::string> Fetch(Connection* connection) const {
    auto request = connection->About<v1::GetRequest>(ns_);
    request.set_group(static_cast<uint32_t>(group_));
    request.set_shard(static_cast<uint32_t>(shard_));
    request.add_hashes(hash_);
    std::string payload;
    v1::MissCause miss = v1::MISS_CAUSE_UNSPECIFIED;
    absl::Status status = GetShards(connection, request, [&](GotShard* shard) {
      miss = shard->miss;
      payload = std::move(shard->payload);
      return absl::OkStatus();
    });
    if (!status.ok()) return status;
    if (miss != v1::MISS_CAUSE_UNSPECIFIED) {
      return absl::NotFoundError(absl::StrCat("a miss, ", Name(miss), ": ", WhyMissing(miss)));
    }
    return payload;
  }

  std::string ns_;
  std::string hash_;
  std::string output_;
  uint64_t group_ = 0;
  uint64_t shard_ = 0;
};

}  // namespace

std::unique_ptr<Command> NewGetCommand() { return std::make_unique<GetCommand>(); }

}  // namespace quarry::ctl
