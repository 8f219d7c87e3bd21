#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "tools/bench/flags.h"
#include "tools/peers/rounds.h"

namespace quarry::peers {
namespace {

using Json = nlohmann::ordered_json;

void Answer(const Json& json) {
  std::printf("%s\n", json.dump().c_str());
  std::fflush(stdout);
}

Json ToJson(const Outcome& outcome) {
  Json json = {{"errors", outcome.errors}};
  if (outcome.errors > 0) json["first_error"] = outcome.first_error;
  return json;
}

Json RunRound(const LoadOptions& options, Rounds* rounds) {
  const Round round = rounds->Run();
  Json json = ToJson(round.outcome);
  json["bytes"] = round.outcome.blocks * options.block_bytes;
  json["queries"] = round.outcome.queries;
  json["elapsed_s"] = round.elapsed_s;
  json["p50_us"] = round.outcome.latencies.PercentileUs(0.50);
  json["p99_us"] = round.outcome.latencies.PercentileUs(0.99);
  return json;
}

// "prepare put", "prepare get", "prepare exists", "window N", "reconnect SERVER METRICS GRPC",
// "run", "check".
Json Obey(const LoadOptions& options, const std::string& command, Rounds* rounds) {
  static const std::map<std::string, Op> operations = {
      {"prepare put", Op::kPut}, {"prepare get", Op::kGet}, {"prepare exists", Op::kExists}};
  if (uint32_t blocks = 0; std::sscanf(command.c_str(), "window %u", &blocks) == 1) {
    rounds->SetWindow(blocks);
    return ToJson(Outcome());
  }
  char server[64], metrics[64], grpc[64];
  if (std::sscanf(command.c_str(), "reconnect %63s %63s %63s", server, metrics, grpc) == 3) {
    Outcome outcome;
    if (absl::Status status = rounds->Reconnect(server, metrics, grpc); !status.ok())
      outcome.AddError(status.message());
    return ToJson(outcome);
  }
  if (command == "run") return RunRound(options, rounds);
  if (command == "check") {
    Outcome outcome;
    const uint64_t wrong = rounds->Check(&outcome);
    Json json = ToJson(outcome);
    json["wrong"] = wrong;
    return json;
  }
  const auto op = operations.find(command);
  Outcome outcome;
  if (op == operations.end()) {
    outcome.AddError("no such command: " + command);
  } else if (absl::Status status = rounds->Prepare(op->second); !status.ok()) {
    outcome.AddError(status.message());
  }
  return ToJson(outcome);
}

}  // namespace

int RunLoad(int argc, char** argv, const char* name, const PeerFactory& factory) {
  signal(SIGPIPE, SIG_IGN);
  LoadOptions options;
  CLI::App app("Load for one system of tools/compare; tools/peers/README.md says what it reads and prints.", name);
  app.add_option("--server", options.server, "HOST:PORT");
  app.add_option("--metrics", options.metrics, "quarry: metrics address of a server with an SSD");
  app.add_option("--grpc", options.grpc, "quarry: gRPC address of it");
  app.add_option("--dir", options.dir, "blobdb: a directory of its own");
  app.add_flag("--wal", options.wal, "blobdb: log and sync every write");
  bench::AddSize(&app, "--block", &options.block_bytes, "Payload of a block");
  app.add_option("--blocks", options.blocks, "Blocks of a round")->check(CLI::Range(1, 1 << 24));
  app.add_option("--batch", options.batch, "Blocks of one call")->check(CLI::Range(1, 1 << 16));
  app.add_option("--inflight", options.inflight, "Calls under way a connection")->check(CLI::Range(1, 1024));
  app.add_option("--connections", options.connections, "Connections")->check(CLI::Range(1, 256));
  app.add_option("--queries", options.queries, "exists: queries of a round, a connection")
      ->check(CLI::Range(1, 1 << 24));
  app.add_option("--hashes", options.hashes, "exists: hashes of one query")->check(CLI::Range(1, 1 << 16));
  CLI11_PARSE(app, argc, argv);
  if (options.block_bytes == 0 || options.block_bytes % 8 != 0) {
    std::fprintf(stderr, "%s: --block must be a multiple of 8 bytes\n", name);
    return 2;
  }

  auto rounds = Rounds::Create(options, factory);
  if (!rounds.ok()) {
    std::fprintf(stderr, "%s: %s\n", name, std::string(rounds.status().message()).c_str());
    return 1;
  }
  Answer({{"ready", true}});
  for (std::string command; std::getline(std::cin, command);) Answer(Obey(options, command, rounds->get()));
  return 0;
}

}  // namespace quarry::peers
