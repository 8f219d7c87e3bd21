// Flags that hold sizes ("2MiB"), times ("5s") and what both commands share.
#ifndef QUARRY_TOOLS_BENCH_FLAGS_H_
#define QUARRY_TOOLS_BENCH_FLAGS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/bench/grpc.h"
#include "tools/bench/replay.h"
#include "tools/bench/spill_load.h"
#include "tools/bench/transfer.h"

namespace quarry::bench {

CLI::Option* AddSize(CLI::App* app, const std::string& flag, uint64_t* bytes, const std::string& help);
CLI::Option* AddDuration(CLI::App* app, const std::string& flag, int64_t* ns, const std::string& help);

// What is parsed is complete only after FinishTransfer.
struct ParsedTransfer {
  TransferOptions options;
  bool json = false;
  bool no_checksum = false;
  std::string op = "get";
  std::string against;
  std::string buffers = "host";
  std::string tier = "dram";
  CLI::Option* memory = nullptr;
  CLI::Option* clients = nullptr;
  CLI::Option* batch = nullptr;
  CLI::Option* working_set = nullptr;
  CLI::Option* ssd_size = nullptr;
  CLI::Option* disk_depth = nullptr;
};
void AddTransferFlags(CLI::App* app, ParsedTransfer* parsed);
void FinishTransfer(ParsedTransfer* parsed);

struct ParsedReplay {
  ReplayOptions options;
  bool json = false;
  bool no_checksum = false;
  std::string speed = "max";
};
void AddReplayFlags(CLI::App* app, ParsedReplay* parsed);
void FinishReplay(ParsedReplay* parsed);

struct ParsedGrpc {
  GrpcOptions options;
  bool json = false;
  std::vector<std::string> parts = {"match", "get", "put", "observers"};
};
void AddGrpcFlags(CLI::App* app, ParsedGrpc* parsed);
void FinishGrpc(ParsedGrpc* parsed);

struct ParsedSpillLoad {
  SpillLoadOptions options;
  bool json = false;
  bool no_checksum = false;
};
void AddSpillLoadFlags(CLI::App* app, ParsedSpillLoad* parsed);
void FinishSpillLoad(ParsedSpillLoad* parsed);

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_FLAGS_H_
