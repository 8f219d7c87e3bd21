// quarry-bench: what Quarry does on this machine. See README.md.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "tools/bench/flags.h"

namespace {

constexpr int kFailed = 1;  // errors, wrong bytes, or a comparison that is void

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "quarry-bench: %s\n", std::string(status.message()).c_str());
  return kFailed;
}

int Transfer(const quarry::bench::ParsedTransfer& parsed) {
  const auto report = quarry::bench::RunTransfer(parsed.options);
  if (!report.ok()) return Fail(report.status());
  std::fputs((parsed.json ? FormatJson(parsed.options, *report) : FormatText(parsed.options, *report)).c_str(), stdout);
  if (report->limit_void) {
    std::fprintf(stderr, "quarry-bench: void: the plain-sockets program was slower than iperf3 (%.2f < %.2f GB/s)\n",
                 report->ssd.has_value() ? report->ssd->sockets_gb_per_s : report->limit_gb_per_s,
                 *report->iperf3_gb_per_s);
  }
  return report->errors == 0 && report->wrong_bytes == 0 && !report->limit_void ? 0 : kFailed;
}

int Grpc(const quarry::bench::ParsedGrpc& parsed) {
  const auto report = quarry::bench::RunGrpc(parsed.options);
  if (!report.ok()) return Fail(report.status());
  std::fputs((parsed.json ? FormatJson(parsed.options, *report) : FormatText(parsed.options, *report)).c_str(), stdout);
  return report->errors == 0 && report->wrong_bytes == 0 ? 0 : kFailed;
}

int Replay(const quarry::bench::ParsedReplay& parsed) {
  const auto report = quarry::bench::RunReplay(parsed.options);
  if (!report.ok()) return Fail(report.status());
  std::fputs((parsed.json ? FormatJson(parsed.options, *report) : FormatText(parsed.options, *report)).c_str(), stdout);
  return report->counts.errors == 0 && report->counts.wrong_bytes == 0 ? 0 : kFailed;
}

int SpillLoad(const quarry::bench::ParsedSpillLoad& parsed) {
  const auto report = quarry::bench::RunSpillLoad(parsed.options);
  if (!report.ok()) return Fail(report.status());
  std::fputs((parsed.json ? FormatJson(parsed.options, *report) : FormatText(parsed.options, *report)).c_str(), stdout);
  return report->errors == 0 && report->wrong_bytes == 0 ? 0 : kFailed;
}

}  // namespace

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);  // a child that has gone is an error like any other
  CLI::App app("Measures Quarry: with a private quarryd, or with --server.", "quarry-bench");
  app.require_subcommand(1);
  app.set_config("--config", "", "TOML file with flags, one table a command");
  quarry::bench::ParsedTransfer transfer;
  quarry::bench::ParsedReplay replay;
  CLI::App* transfer_command = app.add_subcommand("transfer", "How fast one operation goes");
  AddTransferFlags(transfer_command, &transfer);
  quarry::bench::ParsedGrpc grpc;
  CLI::App* grpc_command = app.add_subcommand("grpc", "What gRPC, and those who look on, cost");
  AddGrpcFlags(grpc_command, &grpc);
  quarry::bench::ParsedSpillLoad spill_load;
  CLI::App* spill_load_command =
      app.add_subcommand("spill-load", "What gets from memory lose while the SSD is written to");
  AddSpillLoadFlags(spill_load_command, &spill_load);
  CLI::App* replay_command = app.add_subcommand("replay", "Serves the requests of a trace");
  AddReplayFlags(replay_command, &replay);
  try {
    app.parse(argc, argv);
    if (*transfer_command) FinishTransfer(&transfer);
    if (*replay_command) FinishReplay(&replay);
    if (*grpc_command) FinishGrpc(&grpc);
    if (*spill_load_command) FinishSpillLoad(&spill_load);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  if (*grpc_command) return Grpc(grpc);
  if (*spill_load_command) return SpillLoad(spill_load);
  return *transfer_command ? Transfer(transfer) : Replay(replay);
}
