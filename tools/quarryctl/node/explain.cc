// quarryctl explain: why a prompt misses, and what to do.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tools/quarryctl/node/commands.h"
#include "tools/quarryctl/node/connection.h"
#include "tools/quarryctl/node/hashes.h"
#include "tools/quarryctl/node/names.h"

namespace quarry::ctl {
namespace {

// From lookup, not match: an explanation must not change the counters that it explains.
class ExplainCommand : public NodeCommand {
 public:
  std::string name() const override { return "explain"; }
  std::string help() const override { return "Why a prompt misses, and what to do"; }
  void AddFlags(CLI::App* app) override { blocks_.AddTo(app); }

 protected:
  absl::StatusOr<ExitCode> Ask(Connection* connection, const Context& context) override {
    const auto found = blocks_.Ask(connection, &v1::Cache::Stub::Lookup);
    if (!found.ok()) return found.status();
    const auto is_there = [](const v1::BlockInfo& block) { return IsThere(block.state()); };
    const auto first = std::find_if_not(found->blocks().begin(), found->blocks().end(), is_there);
    const auto total = static_cast<uint64_t>(found->blocks_size());
    Report report;
    report.Add("blocks", "blocks", Value::Count(total));
    if (first == found->blocks().end()) {
      report.Add("first_missing", "first missing", Value::None("none"));
      context.Print(report);
      return ExitCode::kOk;
    }
    report.Add("first_missing", "first missing, block",
               Value::Count(static_cast<uint64_t>(first - found->blocks().begin())));
    report.Add("hash", "its hash", Value::Text(ToHex(first->hash())));
    report.Add("there_behind_it", "blocks there behind it",
               Value::Count(static_cast<uint64_t>(std::count_if(first, found->blocks().end(), is_there))));
    report.Add("cause", "cause", Value::Text(Name(first->miss())));
    report.Add("why", "why", Value::Text(WhyMissing(first->miss())));
    report.Add("advice", "what to do", Value::Text(WhatToDo(first->miss())));
    context.Print(report);
    return ExitCode::kNo;
  }

 private:
  BlocksArguments blocks_;
};

}  // namespace

std::unique_ptr<Command> NewExplainCommand() { return std::make_unique<ExplainCommand>(); }

}  // namespace quarry::ctl
