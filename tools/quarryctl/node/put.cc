// quarryctl put: stores a file as a block's shard.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/checksum.h"
#include "quarry/model_spec.h"
#include "tools/quarryctl/flags.h"
#include "tools/quarryctl/node/commands.h"
#include "tools/quarryctl/node/connection.h"
#include "tools/quarryctl/node/hashes.h"
#include "tools/quarryctl/node/names.h"

namespace quarry::ctl {
namespace {

constexpr size_t kPieceBytes = 1 << 20;

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file;
  if (path != "-") file.open(path, std::ios::binary);
  std::istream& input = path == "-" ? std::cin : file;
  if (!input) return absl::InvalidArgumentError(absl::StrCat("FILE: ", path, ": ", std::strerror(errno)));
  std::string bytes(kMaxShardBytes + 1, '\0');
  input.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<size_t>(input.gcount()));
  if (input.bad()) return absl::InvalidArgumentError(absl::StrCat("FILE: ", path, " cannot be read"));
  if (bytes.size() > kMaxShardBytes) {
    return absl::InvalidArgumentError(absl::StrCat("FILE: ", path, " has more than ", kMaxShardBytes, " bytes"));
  }
  return bytes;
}

class PutCommand : public NodeCommand {
 public:
  std::string name() const override { return "put"; }
  std::string help() const override { return "Stores a file as a block's shard"; }
  void AddFlags(CLI::App* app) override {
    AddNamespace(app, &ns_);
    AddHash(app, "HASH", &hash_, "Hash of the block")->required();
    AddFile(app, "FILE", &file_, "Payload; - is standard input")->required();
    AddHash(app, "--parent", &parent_, "Hash of the block before it in its chain");
    AddNumber(app, "--depth", &depth_, "Its index in its chain", 0, std::numeric_limits<int64_t>::max());
    AddGroup(app, &group_);
    AddShard(app, &shard_);
  }

 protected:
  absl::StatusOr<ExitCode> Ask(Connection* connection, const Context& context) override {
    const absl::StatusOr<std::string> payload = ReadFile(file_);
    if (!payload.ok()) return payload.status();
    const absl::StatusOr<v1::PutResponse::Outcome> outcome = Store(connection, *payload);
    if (!outcome.ok()) return outcome.status();
    const bool refused = outcome->kind() == v1::PutResponse::Outcome::KIND_REFUSED;
    Report report;
    report.Add("outcome", "outcome", Value::Text(Name(outcome->kind())));
    report.Add("reason", "reason", refused ? Value::Text(Name(outcome->reason())) : Value::None());
    report.Add("bytes", "bytes", Value::Count(payload->size()));
    context.Print(report);
    return refused ? ExitCode::kNo : ExitCode::kOk;
  }

 private:
  v1::PutRequest ShardMessage(const std::string& payload) const {
    v1::PutRequest message;
    v1::PutShard* shard = message.mutable_shard();
    shard->set_group(static_cast<uint32_t>(group_));
    shard->set_shard(static_cast<uint32_t>(shard_));
    shard->set_hash(hash_);
    shard->set_parent(parent_);
    shard->set_depth(depth_);
    shard->set_bytes(payload.size());
    for (size_t at = 0; at < payload.size(); at += kChunkBytes) {
      shard->add_chunk_sums(ChunkSum(payload.data() + at, std::min(kChunkBytes, payload.size() - at)));
    }
    return message;
  }

  absl::StatusOr<v1::PutResponse::Outcome> Store(Connection* connection, const std::string& payload) const {
    grpc::ClientContext call;
    connection->SetDeadline(&call);
    v1::PutResponse response;
    const auto writer = connection->cache().Put(&call, &response);
    v1::PutRequest header;
    *header.mutable_header() = connection->About<v1::PutHeader>(ns_);
    // A write fails when the server has ended the call; Finish says why.
    bool open = writer->Write(header) && writer->Write(ShardMessage(payload));
    for (size_t at = 0; open && at < payload.size(); at += kPieceBytes) {
      v1::PutRequest piece;
      piece.set_data(payload.substr(at, kPieceBytes));
      open = writer->Write(piece);
    }
    writer->WritesDone();
    if (const grpc::Status status = writer->Finish(); !status.ok()) return connection->ToStatus(status);
    if (response.outcomes_size() != 1) return absl::InternalError("the node does not say what became of the shard");
    return response.outcomes(0);
  }

  std::string ns_;
  std::string hash_;
  std::string file_;
  std::string parent_;
  uint64_t depth_ = 0;
  uint64_t group_ = 0;
  uint64_t shard_ = 0;
};

}  // namespace

std::unique_ptr<Command> NewPutCommand() { return std::make_unique<PutCommand>(); }

}  // namespace quarry::ctl
