// quarryctl match: how much of a prompt is cached.
#include <limits>

#include "tools/quarryctl/flags.h"
#include "tools/quarryctl/node/commands.h"
#include "tools/quarryctl/node/connection.h"
#include "tools/quarryctl/node/hashes.h"
#include "tools/quarryctl/node/names.h"

namespace quarry::ctl {
namespace {

class MatchCommand : public NodeCommand {
 public:
  std::string name() const override { return "match"; }
  std::string help() const override { return "How much of a prompt is cached"; }
  void AddFlags(CLI::App* app) override {
    blocks_.AddTo(app);
    AddNumber(app, "--local-tokens", &local_tokens_, "Tokens of the prompt that the engine has itself", 0,
              std::numeric_limits<int64_t>::max());
  }

 protected:
  absl::StatusOr<ExitCode> Ask(Connection* connection, const Context& context) override {
    const absl::StatusOr<std::vector<std::string>> hashes = blocks_.Hashes();
    if (!hashes.ok()) return hashes.status();
    auto request = connection->About<v1::MatchRequest>(blocks_.ns());
    request.set_local_tokens(local_tokens_);
    v1::MatchChain* chain = request.add_chains();
    chain->set_group(blocks_.group());
    for (const std::string& hash : *hashes) chain->add_hashes(hash);
    const auto match = connection->Call(&v1::Cache::Stub::Match, request);
    if (!match.ok()) return match.status();
    context.Print(ReportOf(*match, *hashes));
    return match->usable_tokens() > local_tokens_ ? ExitCode::kOk : ExitCode::kNo;
  }

 private:
  static Report ReportOf(const v1::MatchResponse& match, const std::vector<std::string>& hashes) {
    Report report;
    report.Add("usable_tokens", "usable tokens", Value::Count(match.usable_tokens()));
    const bool missed = match.first_miss() != v1::MISS_CAUSE_UNSPECIFIED;
    report.Add("first_miss_block", "first miss, block",
               missed ? Value::Count(match.first_miss_block()) : Value::None("none"));
    report.Add("first_miss", "why", missed ? Value::Text(Name(match.first_miss())) : Value::None());
    Table table({{"hash", "HASH"}, {"state", "STATE"}, {"usable", "USABLE"}});
    for (const v1::MatchChainResult& chain : match.chains()) {
      for (uint64_t i = 0; i < hashes.size() && i < static_cast<uint64_t>(chain.states_size()); ++i) {
        table.AddRow({Value::Text(ToHex(hashes[i])), Value::Text(Name(chain.states(static_cast<int>(i)))),
                      Value::Flag(i >= chain.first_usable() && i < chain.end_usable())});
      }
    }
    report.Add("blocks", std::move(table));
    return report;
  }

  BlocksArguments blocks_;
  uint64_t local_tokens_ = 0;
};

}  // namespace

std::unique_ptr<Command> NewMatchCommand() { return std::make_unique<MatchCommand>(); }

}  // namespace quarry::ctl
