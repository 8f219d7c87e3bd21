// quarryctl export: a namespace's blocks to a file (archive/format.h).
#include <CLI/CLI.hpp>
#include <algorithm>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/quarryctl/archive/new_file.h"
#include "tools/quarryctl/archive/writer.h"
#include "tools/quarryctl/flags.h"
#include "tools/quarryctl/node/commands.h"
#include "tools/quarryctl/node/connection.h"
#include "tools/quarryctl/node/get_shards.h"
#include "tools/quarryctl/node/hashes.h"
#include "tools/quarryctl/node/names.h"
#include "tools/quarryctl/node/signals.h"

namespace quarry::ctl {
namespace {

constexpr uint32_t kPage = 10'000;
constexpr char kDefaultTenant[] = "default";  // whom an empty tenant means
// Of one get, which has to be over within --timeout.
constexpr uint64_t kMostGetBytes = 32 << 20;
constexpr size_t kMostGetBlocks = 1'000;

// A block as it was listed. The list is all that is held at once: about 100 bytes a block.
struct Listed {
  uint32_t group = 0;
  uint64_t depth = 0;
  uint64_t bytes = 0;
  std::string hash;
  bool whole = true;  // all of its shards came
};

class ExportCommand : public Command {
 public:
  std::string name() const override { return "export"; }
  std::string help() const override { return "Writes a namespace's blocks to a file"; }
  void AddFlags(CLI::App* app) override {
    AddNamespace(app, &ns_);
    AddFile(app, "FILE", &file_, "File to write, or to replace when it is complete")->required();
  }

  absl::StatusOr<ExitCode> Run(const Context& context) override {
    Signals signals(StopSignals());
    Connection connection(context.globals);
    signals_ = &signals;
    connection_ = &connection;
    if (absl::Status status = List(); !status.ok()) return status;
    if (absl::Status status = FindSpec(); !status.ok()) return status;
    absl::StatusOr<ArchiveTotals> written = Write();
    if (!written.ok()) return written.status();
    context.Print(ReportOf(*written));
    return ExitCode::kOk;
  }

 private:
  absl::Status CheckNotStopped() const {
    return signals_->Stopped() ? absl::CancelledError("interrupted: no file was written") : absl::OkStatus();
  }

  // Every block that can be read; parents before their children.
  absl::Status List() {
    auto request = connection_->About<v1::ListRequest>(ns_);
    request.set_page_size(kPage);
    do {
      if (absl::Status status = CheckNotStopped(); !status.ok()) return status;
      const auto page = connection_->Call(&v1::Cache::Stub::List, request);
      if (!page.ok()) return page.status();
      for (const v1::BlockInfo& block : page->blocks()) {
        if (IsThere(block.state())) {
          blocks_.push_back({block.group(), block.depth(), block.bytes(), block.hash()});
        } else {
          ++incomplete_;
        }
      }
      request.set_page_token(page->next_page_token());
    } while (!request.page_token().empty());
    std::sort(blocks_.begin(), blocks_.end(), [](const Listed& a, const Listed& b) {
      return std::tie(a.group, a.depth, a.hash) < std::tie(b.group, b.depth, b.hash);
    });
    return absl::OkStatus();
  }

  absl::Status FindSpec() {
    const std::string tenant = connection_->tenant().empty() ? kDefaultTenant : connection_->tenant();
    v1::ListNamespacesRequest request;
    request.set_tenant(tenant);
    auto list = connection_->Call(&v1::Admin::Stub::ListNamespaces, request);
    if (!list.ok()) return list.status();
    for (v1::NamespaceUsage& usage : *list->mutable_namespaces()) {
      if (usage.namespace_().name() == ns_) info_.Swap(usage.mutable_namespace_());
    }
    if (info_.name() == ns_) return absl::OkStatus();
    return absl::NotFoundError(absl::StrCat("namespace \"", ns_, "\": retired while it was listed"));
  }

  absl::StatusOr<ArchiveTotals> Write() {
    absl::StatusOr<NewFile> file = NewFile::Create(file_);
    if (!file.ok()) return Named(file.status());
    absl::StatusOr<ArchiveWriter> writer =
        ArchiveWriter::Create(info_, [&](absl::string_view bytes) { return Named(file->Append(bytes)); });
    if (!writer.ok()) return writer.status();
    for (size_t begin = 0; begin < blocks_.size();) {
      const size_t end = EndOfBatch(begin);
      if (absl::Status status = WriteBatch(begin, end, &*writer); !status.ok()) return status;
      begin = end;
    }
    absl::Status status = writer->Finish();
    if (status.ok()) status = CheckNotStopped();
    if (status.ok()) status = Named(file->Commit());
    if (!status.ok()) return status;
    return writer->totals();
  }

  static absl::Status Named(const absl::Status& status) {
    return status.ok() ? status : absl::Status(status.code(), absl::StrCat("FILE: ", status.message()));
  }

  // As many blocks of one group as one get fetches.
  size_t EndOfBatch(size_t begin) const {
    uint64_t bytes = 0;
    size_t end = begin;
    while (end < blocks_.size() && end - begin < kMostGetBlocks && blocks_[end].group == blocks_[begin].group) {
      bytes += blocks_[end].bytes;
      if (bytes > kMostGetBytes && end > begin) break;
      ++end;
    }
    return end;
  }

  absl::Status WriteBatch(size_t begin, size_t end, ArchiveWriter* writer) {
    auto request = connection_->About<v1::GetRequest>(ns_);
    const uint32_t group = blocks_[begin].group;
    request.set_group(group);
    for (size_t i = begin; i < end; ++i) request.add_hashes(blocks_[i].hash);
    const uint32_t shards = info_.spec().groups(static_cast<int>(group)).shards();
    for (uint32_t shard = 0; shard < shards; ++shard) {
      request.set_shard(shard);
      absl::Status status = GetShards(connection_, request, [&](GotShard* got) {
        Listed& block = blocks_[begin + got->item];
        if (got->miss != v1::MISS_CAUSE_UNSPECIFIED) {
          block.whole = false;
          return absl::OkStatus();
        }
        if (absl::Status stopped = CheckNotStopped(); !stopped.ok()) return stopped;
        return writer->Append({group, shard, block.depth, block.hash, "", std::move(got->payload), {}});
      });
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  Report ReportOf(const ArchiveTotals& written) const {
    const auto whole = std::count_if(blocks_.begin(), blocks_.end(), [](const Listed& block) { return block.whole; });
    Report report;
    report.Add("file", "file", Value::Text(file_));
    report.Add("namespace", "namespace", Value::Text(ns_));
    report.Add("blocks", "blocks", Value::Count(static_cast<uint64_t>(whole)));
    report.Add("shards", "shards", Value::Count(written.records));
    report.Add("payload_bytes", "payload", Value::Bytes(written.payload_bytes));
    report.Add("vanished_blocks", "blocks gone meanwhile", Value::Count(blocks_.size() - static_cast<uint64_t>(whole)));
    report.Add("incomplete_blocks", "incomplete blocks left out", Value::Count(incomplete_));
    return report;
  }

  std::string ns_;
  std::string file_;
  Signals* signals_ = nullptr;  // these two during Run
  Connection* connection_ = nullptr;
  v1::NamespaceInfo info_;
  std::vector<Listed> blocks_;
  uint64_t incomplete_ = 0;
};

}  // namespace

std::unique_ptr<Command> NewExportCommand() { return std::make_unique<ExportCommand>(); }

}  // namespace quarry::ctl
