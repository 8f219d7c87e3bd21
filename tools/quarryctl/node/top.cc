// quarryctl top: what a node does, again and again.
#include <CLI/CLI.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/units.h"
#include "tools/quarryctl/flags.h"
#include "tools/quarryctl/node/commands.h"
#include "tools/quarryctl/node/connection.h"
#include "tools/quarryctl/node/rates.h"
#include "tools/quarryctl/node/screen.h"
#include "tools/quarryctl/node/signals.h"
#include "tools/quarryctl/node/top_report.h"

namespace quarry::ctl {
namespace {

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kLeastInterval = 100 * kMillisecond;
constexpr int64_t kMostInterval = 3'600'000 * kMillisecond;

std::vector<int> AllSignals() {
  std::vector<int> signals = StopSignals();
  signals.insert(signals.end(), {SIGWINCH, SIGTSTP});
  return signals;
}

absl::StatusOr<NodeSample> Sample(Connection* connection) {
  auto stats = connection->Call(&v1::Cache::Stub::Stats, v1::StatsRequest());
  if (!stats.ok()) return stats.status();
  v1::ListNamespacesRequest request;
  request.set_tenant(connection->tenant());
  auto usage = connection->Call(&v1::Admin::Stub::ListNamespaces, request);
  if (!usage.ok()) return usage.status();
  return NodeSample{*std::move(stats), *std::move(usage)};
}

// A node that may be there again the next time.
bool MayComeBack(const absl::Status& status) { return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status); }

class TopCommand : public Command {
 public:
  std::string name() const override { return "top"; }
  std::string help() const override { return "What the node does, second by second"; }
  void AddFlags(CLI::App* app) override {
    AddDuration(app, "--interval", &interval_ns_, "Between two samples", kLeastInterval, kMostInterval);
    app->add_flag("--once", once_, "Print one interval and end");
  }

  absl::StatusOr<ExitCode> Run(const Context& context) override {
    Signals signals(AllSignals());
    Connection connection(context.globals);
    absl::StatusOr<ExitCode> code = Follow(&connection, &signals, context);
    screen_.reset();  // before an error is printed, and before a signal may end the process
    return code;
  }

 private:
  absl::StatusOr<ExitCode> Follow(Connection* connection, Signals* signals, const Context& context) {
    absl::StatusOr<NodeSample> first = Sample(connection);
    if (!first.ok()) return first.status();
    before_ = *std::move(first);
    if (!once_ && !context.globals.json && IsScreen()) {
      screen_.emplace(&context.out);
      screen_->Draw(absl::StrCat(context.globals.server, ": what it does from now on is shown every ",
                                 FormatDuration(interval_ns_)));
    }
    while (Pause(signals)) {
      absl::StatusOr<NodeSample> now = Sample(connection);
      if (!now.ok() && (once_ || !MayComeBack(now.status()))) return now.status();
      Show(now, context);
      if (!context.out) return absl::UnknownError("standard output cannot be written");
      if (once_) break;
      if (now.ok()) before_ = *std::move(now);
    }
    return ExitCode::kOk;
  }

  // Until the next sample is due; false: told to stop.
  bool Pause(Signals* signals) {
    const int64_t due_ns = Clock::Real()->NowNs() + interval_ns_;
    while (true) {
      const int64_t left_ns = due_ns - Clock::Real()->NowNs();
      if (left_ns <= 0) return !signals->Stopped();
      const int signal = signals->Wait(left_ns);
      if (IsStop(signal)) return false;
      if (signal == SIGTSTP) screen_.has_value() ? screen_->Suspend() : static_cast<void>(raise(SIGSTOP));
      if ((signal == SIGWINCH || signal == SIGTSTP) && screen_.has_value()) screen_->Draw(page_);
    }
  }

  void Show(const absl::StatusOr<NodeSample>& now, const Context& context) {
    Report report;
    if (!now.ok()) {
      report.Add("error", "no answer", Value::Text(std::string(now.status().message())));
    } else {
      const NodeRates rates = RatesBetween(before_, *now);
      report = context.globals.json ? TopRecord(context.globals.server, rates, *now)
                                    : TopPage(context.globals.server, rates, *now);
    }
    page_ = context.globals.json ? report.ToJson(/*one_line=*/true) : report.ToText();
    if (screen_.has_value()) return screen_->Draw(page_);
    if (!context.globals.json && std::exchange(printed_, true)) context.out << "\n";
    (context.out << page_).flush();
  }

  int64_t interval_ns_ = 1000 * kMillisecond;
  bool once_ = false;
  NodeSample before_;
  std::string page_;  // as shown last
  bool printed_ = false;
  std::optional<Screen> screen_;
};

}  // namespace

std::unique_ptr<Command> NewTopCommand() { return std::make_unique<TopCommand>(); }

}  // namespace quarry::ctl
