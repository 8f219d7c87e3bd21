// quarryctl watch: what is stored and removed, as it happens.
#include <CLI/CLI.hpp>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "tools/quarryctl/flags.h"
#include "tools/quarryctl/node/call_guard.h"
#include "tools/quarryctl/node/commands.h"
#include "tools/quarryctl/node/connection.h"
#include "tools/quarryctl/node/hashes.h"
#include "tools/quarryctl/node/names.h"
#include "tools/quarryctl/node/signals.h"

namespace quarry::ctl {
namespace {

using v1::WatchEvent;

constexpr char kHeadings[] = "  NUMBER  EVENT         GROUP   DEPTH      BYTES  CAUSE         HASH  NAMESPACE\n";

// Where a watch may go on: a life of the daemon, and an event of it.
struct Position {
  std::string epoch;
  uint64_t number = 0;
};

absl::StatusOr<Position> ParsePosition(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  Position position;
  absl::StatusOr<std::string> epoch = ParseHash(parts[0]);
  if (parts.size() != 2 || !epoch.ok() || !absl::SimpleAtoi(parts[1], &position.number)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not EPOCH:NUMBER, as watch --json prints it under \"resume\""));
  }
  position.epoch = *std::move(epoch);
  return position;
}

std::string ToText(const std::string& epoch, uint64_t number) { return absl::StrCat(ToHex(epoch), ":", number); }

// A line; columns of fixed width, the longest last.
std::string TextRow(const WatchEvent& event) {
  const std::string begin =
      absl::StrFormat("%8s  %-12s", event.number() == 0 ? "-" : absl::StrCat(event.number()), Name(event.kind()));
  switch (event.kind()) {
    case WatchEvent::KIND_GAP:
      return absl::StrCat(begin, "  ", event.lost() == 0 ? "an unknown number of" : absl::StrCat(event.lost()),
                          " events were lost: whoever keeps a list takes a new --snapshot\n");
    case WatchEvent::KIND_SNAPSHOT_END:
      return absl::StrCat(begin, "  what follows has happened since\n");
    case WatchEvent::KIND_CLEARED:
      return absl::StrCat(begin, "  every block of ", event.namespace_(), " is gone\n");
    default:
      break;
  }
  const bool removed = event.kind() == WatchEvent::KIND_REMOVED;
  return absl::StrFormat("%s  %5u  %6s  %9u  %-12s  %s  %s\n", begin, event.group(),
                         removed ? "-" : absl::StrCat(event.depth()), event.bytes(),
                         removed ? Name(event.cause()) : "-", ToHex(event.hash()), event.namespace_());
}

Value TextOrNone(const std::string& text) { return text.empty() ? Value::None() : Value::Text(text); }

std::string JsonRow(const WatchEvent& event, const std::string& epoch) {
  const bool stored = event.kind() == WatchEvent::KIND_STORED;
  const bool removed = event.kind() == WatchEvent::KIND_REMOVED;
  const auto of_block = [&](Value value) { return stored || removed ? std::move(value) : Value::None(); };
  const bool gap = event.kind() == WatchEvent::KIND_GAP && event.lost() != 0;
  Report report;
  report.Add("event", "", Value::Text(Name(event.kind())));
  report.Add("resume", "", event.number() == 0 ? Value::None() : Value::Text(ToText(epoch, event.number())));
  report.Add("number", "", event.number() == 0 ? Value::None() : Value::Count(event.number()));
  report.Add("namespace", "", TextOrNone(event.namespace_()));
  report.Add("group", "", of_block(Value::Count(event.group())));
  report.Add("hash", "", TextOrNone(ToHex(event.hash())));
  report.Add("parent", "", TextOrNone(ToHex(event.parent())));
  report.Add("depth", "", stored ? Value::Count(event.depth()) : Value::None());
  report.Add("bytes", "", of_block(Value::Bytes(event.bytes())));
  report.Add("tier", "", stored ? Value::Text(Name(event.tier())) : Value::None());
  report.Add("cause", "", removed ? Value::Text(Name(event.cause())) : Value::None());
  report.Add("lost", "", gap ? Value::Count(event.lost()) : Value::None());
  return report.ToJson(/*one_line=*/true);
}

class WatchCommand : public Command {
 public:
  std::string name() const override { return "watch"; }
  std::string help() const override { return "Prints what is stored and removed, as it happens"; }
  void AddFlags(CLI::App* app) override {
    AddText(app, "NAMESPACE", &ns_, "Name of a namespace; none: all of the tenant")->type_name("");
    CLI::Option* snapshot = app->add_flag("--snapshot", snapshot_, "First every block that is there");
    AddText(app, "--resume", &resume_, "Go on behind this event, as --json prints it",
            [](const std::string& text) { return ParsePosition(text).status(); })
        ->type_name("EPOCH:NUMBER")
        ->excludes(snapshot);
    AddNumber(app, "--count", &count_, "End after so many events", 1, std::numeric_limits<int64_t>::max());
  }

  absl::StatusOr<ExitCode> Run(const Context& context) override {
    Signals signals(StopSignals());
    Connection connection(context.globals);
    grpc::ClientContext call;
    CallGuard guard(&call, &connection, &signals, context.globals.timeout_ns);
    const auto reader = connection.cache().Watch(&call, Request(connection));  // waits for a connection
    reader->WaitForInitialMetadata();
    guard.Answered();
    bool more = true;
    for (v1::WatchResponse message; more && reader->Read(&message);) more = Print(message, context);
    if (!more) call.TryCancel();
    const grpc::Status status = reader->Finish();
    const absl::Status failure = guard.failure();
    if (!context.out) return absl::UnknownError("standard output cannot be written");
    if (!more || guard.stopped()) return ExitCode::kOk;
    return Ended(failure.ok() ? connection.ToStatus(status) : failure);
  }

 private:
  v1::WatchRequest Request(const Connection& connection) const {
    auto request = connection.About<v1::WatchRequest>(ns_);
    request.set_snapshot(snapshot_);
    if (!resume_.empty()) {
      const absl::StatusOr<Position> position = ParsePosition(resume_);  // checked as a flag
      request.set_resume_epoch(position->epoch);
      request.set_resume_after(position->number);
    }
    return request;
  }

  // False: that was all.
  bool Print(const v1::WatchResponse& message, const Context& context) {
    if (printed_ == 0 && !context.globals.json) context.out << kHeadings;
    for (const WatchEvent& event : message.events()) {
      context.out << (context.globals.json ? JsonRow(event, message.epoch()) : TextRow(event));
      if (event.number() != 0) last_ = ToText(message.epoch(), event.number());
      if (++printed_ == count_) break;
    }
    context.out.flush();
    return context.out.good() && printed_ != count_;
  }

  // A watch has no end of its own.
  absl::Status Ended(const absl::Status& status) const {
    if (absl::IsNotFound(status) || absl::IsInvalidArgument(status)) return status;
    const std::string why = status.ok() ? "the node ended the watch" : std::string(status.message());
    const std::string how = last_.empty() ? "" : absl::StrCat("; --resume ", last_, " goes on behind the last event");
    return absl::UnavailableError(absl::StrCat(why, how));
  }

  std::string ns_;
  bool snapshot_ = false;
  std::string resume_;
  uint64_t count_ = 0;  // 0: no bound
  uint64_t printed_ = 0;
  std::string last_;  // position of the last event that has one
};

}  // namespace

std::unique_ptr<Command> NewWatchCommand() { return std::make_unique<WatchCommand>(); }

}  // namespace quarry::ctl
