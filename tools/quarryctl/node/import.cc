// quarryctl import: stores what quarryctl export has written (archive/format.h).
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/quarryctl/archive/reader.h"
#include "tools/quarryctl/flags.h"
#include "tools/quarryctl/node/commands.h"
#include "tools/quarryctl/node/connection.h"
#include "tools/quarryctl/node/names.h"
#include "tools/quarryctl/node/signals.h"

namespace quarry::ctl {
namespace {

using Outcome = v1::PutResponse::Outcome;

constexpr size_t kPieceBytes = 1 << 20;
// Of one put, which has to be over within --timeout.
constexpr uint64_t kMostPutBytes = 32 << 20;
constexpr uint64_t kMostPutShards = 1'000;
constexpr size_t kMostTouched = 65'536;  // hashes of one call

struct Imported {
  uint64_t stored = 0;
  uint64_t stored_bytes = 0;
  uint64_t already_there = 0;
  std::map<v1::RefusalReason, uint64_t> refused;
};

// One call of Cache.Put.
class PutCall {
 public:
  PutCall(Connection* connection, const std::string& ns) : connection_(connection) {
    connection->SetDeadline(&call_);
    writer_ = connection->cache().Put(&call_, &response_);
    v1::PutRequest header;
    *header.mutable_header() = connection->About<v1::PutHeader>(ns);
    open_ = writer_->Write(header);
  }

  // False: the node has ended the call, and Finish says why.
  bool Add(const ShardRecord& record) {
    v1::PutRequest begin;
    v1::PutShard* shard = begin.mutable_shard();
    shard->set_group(record.group);
    shard->set_shard(record.shard);
    shard->set_hash(record.hash);
    shard->set_parent(record.parent);
    shard->set_depth(record.depth);
    shard->set_bytes(record.payload.size());
    for (const uint64_t sum : record.sums) shard->add_chunk_sums(sum);
    open_ = open_ && writer_->Write(begin);
    for (size_t at = 0; open_ && at < record.payload.size(); at += kPieceBytes) {
      v1::PutRequest piece;
      piece.set_data(record.payload.substr(at, kPieceBytes));
      open_ = writer_->Write(piece);
    }
    sizes_.push_back(record.payload.size());
    bytes_ += record.payload.size();
    return open_;
  }

  bool IsFull() const { return bytes_ >= kMostPutBytes || sizes_.size() >= kMostPutShards; }

  absl::Status Finish(Imported* imported) {
    writer_->WritesDone();
    if (const grpc::Status status = writer_->Finish(); !status.ok()) return connection_->ToStatus(status);
    if (static_cast<size_t>(response_.outcomes_size()) != sizes_.size()) {
      return absl::InternalError("the node does not say what became of each shard");
    }
    for (size_t i = 0; i < sizes_.size(); ++i) {
      const Outcome& outcome = response_.outcomes(static_cast<int>(i));
      if (outcome.kind() == Outcome::KIND_STORED) {
        ++imported->stored;
        imported->stored_bytes += sizes_[i];
      } else if (outcome.kind() == Outcome::KIND_ALREADY_THERE) {
        ++imported->already_there;
      } else {
        ++imported->refused[outcome.reason()];
      }
    }
    return absl::OkStatus();
  }

 private:
  Connection* connection_;
  grpc::ClientContext call_;
  v1::PutResponse response_;
  std::unique_ptr<grpc::ClientWriter<v1::PutRequest>> writer_;
  bool open_ = true;
  std::vector<uint64_t> sizes_;
  uint64_t bytes_ = 0;
};

class ImportCommand : public Command {
 public:
  std::string name() const override { return "import"; }
  std::string help() const override { return "Stores the blocks of a file that export has written"; }
  void AddFlags(CLI::App* app) override {
    AddFile(app, "FILE", &file_, "File that export has written")->required();
    AddText(app, "--name", &name_, "Name of the namespace, if not as in the file", [](const std::string& name) {
      return name.empty() ? absl::InvalidArgumentError("empty, must have 1 byte or more") : absl::OkStatus();
    })->type_name("NAME");
  }

  absl::StatusOr<ExitCode> Run(const Context& context) override {
    Signals signals(StopSignals());
    Connection connection(context.globals);
    signals_ = &signals;
    connection_ = &connection;
    if (absl::Status status = Open(); !status.ok()) return status;
    // All of it, before the node hears of any of it.
    const absl::StatusOr<ArchiveTotals> totals = VerifyArchive(&input_);
    if (!totals.ok()) return Named(totals.status());
    absl::StatusOr<ArchiveReader> reader = Rewind();
    if (!reader.ok()) return Named(reader.status());
    if (name_.empty()) name_ = reader->info().name();
    if (absl::Status status = OpenNamespace(reader->info()); !status.ok()) return status;
    Imported imported;
    absl::Status status = Store(&*reader, &imported);
    if (status.ok()) status = TouchAll();
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat(status.message(), "; ", imported.stored, " of ", totals->records,
                                                      " shards were stored before"));
    }
    context.Print(ReportOf(*totals, imported));
    return imported.refused.empty() ? ExitCode::kOk : ExitCode::kNo;
  }

 private:
  absl::Status Named(const absl::Status& status) const {
    return {status.code(), absl::StrCat("FILE: ", file_, ": ", status.message())};
  }

  absl::Status Open() {
    input_.open(file_, std::ios::binary);
    if (!input_) return Named(absl::InvalidArgumentError(std::strerror(errno)));
    struct stat info {};
    if (stat(file_.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) {
      return Named(absl::InvalidArgumentError("is not a file, which is needed because it is read twice"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<ArchiveReader> Rewind() {
    input_.clear();
    input_.seekg(0);
    return ArchiveReader::Open(&input_);
  }

  absl::Status OpenNamespace(const v1::NamespaceInfo& info) {
    auto request = connection_->About<v1::OpenNamespaceRequest>(name_);
    *request.mutable_spec() = info.spec();
    return connection_->Call(&v1::Cache::Stub::OpenNamespace, request).status();
  }

  // In the order of the file. Each record is checked once more: the file may have changed.
  absl::Status Store(ArchiveReader* reader, Imported* imported) {
    hashes_.resize(static_cast<size_t>(reader->info().spec().groups_size()));
    ShardRecord record;
    for (bool more = true; more;) {
      if (signals_->Stopped()) return absl::CancelledError("interrupted");
      PutCall call(connection_, name_);
      absl::Status read;
      for (bool open = true; open && more && read.ok() && !call.IsFull();) {
        const absl::StatusOr<bool> next = reader->Next(&record);
        read = next.status();
        more = next.ok() && *next;
        if (!more) break;
        if (record.shard == 0) hashes_[record.group].push_back(record.hash);
        open = call.Add(record);
      }
      absl::Status put = call.Finish(imported);
      if (!read.ok()) return Named(read);
      if (!put.ok()) return put;
    }
    return absl::OkStatus();
  }

  // A put without a parent makes a block one of its own for the node's eviction, the first
  // stored the first to go. Touched together, from the ends of the chains to their beginnings
  // as the file has these in order, the ends go first.
  absl::Status TouchAll() {
    for (size_t group = 0; group < hashes_.size(); ++group) {
      const std::vector<std::string>& hashes = hashes_[group];
      for (size_t end = hashes.size(); end > 0;) {
        const size_t begin = end - std::min(end, kMostTouched);
        auto request = connection_->About<v1::TouchRequest>(name_);
        request.set_group(static_cast<uint32_t>(group));
        for (size_t i = begin; i < end; ++i) request.add_hashes(hashes[i]);
        const auto touched = connection_->Call(&v1::Cache::Stub::Touch, request);
        if (!touched.ok()) return touched.status();
        end = begin;
      }
    }
    return absl::OkStatus();
  }

  Report ReportOf(const ArchiveTotals& totals, const Imported& imported) const {
    uint64_t refused = 0;
    Table reasons({{"reason", "REFUSALS"}, {"count", "COUNT"}});
    for (const auto& [reason, count] : imported.refused) {
      refused += count;
      reasons.AddRow({Value::Text(Name(reason)), Value::Count(count)});
    }
    Report report;
    report.Add("file", "file", Value::Text(file_));
    report.Add("namespace", "namespace", Value::Text(name_));
    report.Add("shards", "shards in the file", Value::Count(totals.records));
    report.Add("payload_bytes", "payload", Value::Bytes(totals.payload_bytes));
    report.Add("stored", "stored", Value::Count(imported.stored));
    report.Add("stored_bytes", "stored payload", Value::Bytes(imported.stored_bytes));
    report.Add("already_there", "already there", Value::Count(imported.already_there));
    report.Add("refused", "refused", Value::Count(refused));
    report.Add("refusals", std::move(reasons));
    return report;
  }

  std::string file_;
  std::string name_;
  Signals* signals_ = nullptr;  // these two during Run
  Connection* connection_ = nullptr;
  std::ifstream input_;
  std::vector<std::vector<std::string>> hashes_;  // of what was put, by group
};

}  // namespace

std::unique_ptr<Command> NewImportCommand() { return std::make_unique<ImportCommand>(); }

}  // namespace quarry::ctl
