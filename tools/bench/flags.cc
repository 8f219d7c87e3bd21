#include "tools/bench/flags.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "common/units.h"

namespace quarry::bench {
namespace {

constexpr uint32_t kMaxClients = 256;
constexpr uint32_t kMaxStreams = 16;
constexpr uint32_t kMaxDiskDepth = 1024;
constexpr uint32_t kMaxWatchers = 256;
constexpr uint32_t kMaxConcurrency = 1024;
constexpr uint32_t kMaxBatch = 65'536;
constexpr uint64_t kMaxBlockBytes = 64 << 20;
// Room beside the payload of a match's blocks: slot and slab rounding, index, buffers.
constexpr double kMatchMemoryFactor = 1.4;
constexpr uint64_t kMatchMemoryExtra = 512 << 20;
// Tier ssd, unless told.
constexpr uint64_t kSsdMemory = 1 << 30;  // of gets: little of the working set fits
constexpr uint64_t kSsdSize = uint64_t{4} << 30;
constexpr uint32_t kSsdPutBatch = 8;
constexpr uint64_t kSsdWorkingSets = 4;  // times the memory
constexpr double kSsdFactor = 1.25;      // headers, ends of extents, and what is kept free
constexpr uint64_t kLargeBlock = 1 << 20;

// QUARRY_BENCH_MEMORY for --memory.
CLI::Option* WithVariable(CLI::Option* option, const std::string& flag) {
  const std::string name = absl::StrReplaceAll(flag.substr(2), {{"-", "_"}});
  return option->envname("QUARRY_BENCH_" + absl::AsciiStrToUpper(name));
}

template <typename T>
CLI::Option* Add(CLI::App* app, const std::string& flag, T* value, const std::string& help) {
  return WithVariable(app->add_option(flag, *value, help)->capture_default_str(), flag);
}

std::vector<CLI::Option*> AddPrivateServerFlags(CLI::App* app, ServerOptions* server) {
  return {Add(app, "--quarryd", &server->quarryd, "Program of the private one; none: beside this program"),
          Add(app, "--quarryd-flag", &server->quarryd_flags,
              "Flags for the private one, as --quarryd-flag=--log-level=info")};
}

void AddServerFlags(CLI::App* app, ServerOptions* server) {
  CLI::Option* running =
      Add(app, "--server", &server->server, "Transfer address of a running quarryd; none: start a private one");
  Add(app, "--server-grpc", &server->grpc, "gRPC address of that quarryd, for figures from its Stats")->needs(running);
  Add(app, "--server-metrics", &server->metrics, "Metrics address of that quarryd, to be scraped")->needs(running);
  Add(app, "--server-pid", &server->server_pid, "Its process, for its CPU time")->needs(running);
  for (CLI::Option* option : AddPrivateServerFlags(app, server)) option->excludes(running);
}

// The option of the size.
CLI::Option* AddSsdFlags(CLI::App* app, ServerOptions* server) {
  CLI::Option* dir = Add(app, "--ssd-dir", &server->ssd_dir,
                         "Directory in which the private quarryd gets one of its own, removed at the end");
  if (CLI::Option* running = app->get_option_no_throw("--server"); running != nullptr) dir->excludes(running);
  Add(app, "--ssd-io", &server->ssd_io, "How the SSD is read and written")
      ->check(CLI::IsMember({"auto", "io_uring", "libaio", "threads"}))
      ->needs(dir);
  return AddSize(app, "--ssd-size", &server->ssd_bytes, "Bytes of blocks on the SSD")->needs(dir);
}

// A working set of several times the memory, on an SSD with room for all of it.
void FinishColdReads(ParsedTransfer* parsed) {
  TransferOptions& options = parsed->options;
  if (parsed->memory->count() == 0) options.server.memory_bytes = kSsdMemory;
  if (parsed->working_set->count() == 0) options.working_set_bytes = kSsdWorkingSets * options.server.memory_bytes;
  const auto least = static_cast<uint64_t>(static_cast<double>(options.working_set_bytes) * kSsdFactor);
  if (parsed->ssd_size->count() == 0) options.server.ssd_bytes = least;
  if (options.server.ssd_bytes < least) {
    throw CLI::ValidationError("--ssd-size", "must hold --working-set and what is kept free: " + FormatBytes(least));
  }
  if (options.working_set_bytes < 2 * options.server.memory_bytes) {
    throw CLI::ValidationError("--working-set", "must be at least twice --memory, which is to hold little of it");
  }
}

void FinishSsd(ParsedTransfer* parsed) {
  TransferOptions& options = parsed->options;
  options.tier = Tier::kSsd;
  if (options.server.ssd_dir.empty()) throw CLI::ValidationError("--tier ssd", "needs --ssd-dir");
  if (options.op == TransferOp::kMatch) throw CLI::ValidationError("--tier ssd", "has no --op match");
  if (options.op == TransferOp::kPut) {
    if (parsed->batch->count() == 0) options.batch = kSsdPutBatch;
    if (parsed->ssd_size->count() == 0) options.server.ssd_bytes = kSsdSize;
  } else {
    FinishColdReads(parsed);
  }
  if (parsed->disk_depth->count() == 0) options.disk_depth = options.block_bytes >= kLargeBlock ? 8 : 32;
}
}  // namespace

CLI::Option* AddSize(CLI::App* app, const std::string& flag, uint64_t* bytes, const std::string& help) {
  auto parse = [flag, bytes](const std::string& text) {
    const auto parsed = ParseBytes(text);
    if (!parsed.ok()) throw CLI::ValidationError(flag, std::string(parsed.status().message()));
    *bytes = *parsed;
  };
  return WithVariable(app->add_option_function<std::string>(flag, parse, help)->default_str(FormatBytes(*bytes)), flag)
      ->type_name("SIZE");
}

CLI::Option* AddDuration(CLI::App* app, const std::string& flag, int64_t* ns, const std::string& help) {
  auto parse = [flag, ns](const std::string& text) {
    const auto parsed = ParseDuration(text);
    if (!parsed.ok()) throw CLI::ValidationError(flag, std::string(parsed.status().message()));
    *ns = *parsed;
  };
  return WithVariable(app->add_option_function<std::string>(flag, parse, help)->default_str(FormatDuration(*ns)), flag)
      ->type_name("TIME");
}

void AddTransferFlags(CLI::App* app, ParsedTransfer* parsed) {
  TransferOptions& options = parsed->options;
  AddServerFlags(app, &options.server);
  Add(app, "--op", &parsed->op, "What to measure")->check(CLI::IsMember({"put", "get", "fetch", "match"}));
  Add(app, "--transport", &options.transport, "How the bytes travel")
      ->check(CLI::IsMember({"tcp", "auto", "shm", "ucx"}));
  Add(app, "--ucx-library", &options.ucx_library, "transport ucx: libucp of both ends and of the limit");
  Add(app, "--buffers", &parsed->buffers,
      "The clients' memory: host, a memfd, which a server on the host maps, or cuda, of a GPU")
      ->check(CLI::IsMember({"host", "memfd", "cuda"}));
  AddSize(app, "--block", &options.block_bytes, "Payload of a block");
  AddSize(app, "--segment", &options.segment_bytes, "Pieces of a block in the client's memory");
  parsed->batch = Add(app, "--batch", &options.batch, "Blocks of one call; tier ssd: a put has 8 unless given")
                      ->check(CLI::Range(1u, kMaxBatch));
  Add(app, "--inflight", &options.inflight, "Calls under way a client")->check(CLI::Range(1u, kMaxBatch));
  parsed->clients = Add(app, "--clients", &options.clients, "Clients; match, transport ucx: 1 unless given")
                        ->check(CLI::Range(1u, kMaxClients));
  Add(app, "--streams", &options.streams, "Data connections a client")->check(CLI::Range(1u, kMaxStreams));
  AddDuration(app, "--duration", &options.duration_ns, "How long to measure Quarry; as long again for the limit");
  Add(app, "--against", &parsed->against,
      "limit: alternate with plain sockets, with plain copies of transport shm, with bare UCX, with direct IO of "
      "tier ssd")
      ->check(CLI::IsMember({"limit"}));
  Add(app, "--pairs", &options.pairs, "Alternations with the limit")->check(CLI::Range(1u, 1000u));
  AddSize(app, "--arena", &options.arena_bytes, "Memory of all clients together");
  parsed->memory = AddSize(app, "--memory", &options.server.memory_bytes,
                           "Memory of the private quarryd; 1GiB to get from the SSD, unless given");
  parsed->working_set = AddSize(app, "--working-set", &options.working_set_bytes,
                                "get, fetch: distinct bytes in the server; 4 times --memory of an SSD, unless given");
  Add(app, "--tier", &parsed->tier, "ssd: blocks that memory has no room for")->check(CLI::IsMember({"dram", "ssd"}));
  parsed->ssd_size = AddSsdFlags(app, &options.server);
  parsed->disk_depth = Add(app, "--disk-depth", &options.disk_depth,
                           "tier ssd: requests that the limit has in flight; 32 of blocks below 1MiB unless given")
                           ->check(CLI::Range(1u, kMaxDiskDepth));
  Add(app, "--blocks", &options.blocks, "match: blocks in the index");
  AddSize(app, "--match-block", &options.match_block_bytes, "match: payload of a block");
  Add(app, "--hashes", &options.hashes, "match: hashes of one match")->check(CLI::Range(1u, kMaxBatch));
  app->add_flag("--no-checksum", parsed->no_checksum, "The client neither computes nor checks checksums");
  app->add_flag("--json", parsed->json, "Print JSON");
}

void FinishTransfer(ParsedTransfer* parsed) {
  static const std::map<std::string, TransferOp> ops = {{"put", TransferOp::kPut},
                                                        {"get", TransferOp::kGet},
                                                        {"fetch", TransferOp::kFetch},
                                                        {"match", TransferOp::kMatch}};
  TransferOptions& options = parsed->options;
  options.op = ops.at(parsed->op);
  options.checksum = !parsed->no_checksum;
  static const std::map<std::string, Buffers> buffers = {
      {"host", Buffers::kHost}, {"memfd", Buffers::kMemfd}, {"cuda", Buffers::kCuda}};
  options.buffers = buffers.at(parsed->buffers);
  options.against_limit = !parsed->against.empty();
  if (options.against_limit && options.buffers == Buffers::kCuda) {
    throw CLI::ValidationError("--against", "not with --buffers cuda: tools/gpu-check measures against plain copies");
  }
  if (options.block_bytes == 0 || options.block_bytes > kMaxBlockBytes || options.match_block_bytes == 0 ||
      options.match_block_bytes > kMaxBlockBytes) {
    throw CLI::ValidationError("--block, --match-block", "must be from 8B to " + FormatBytes(kMaxBlockBytes));
  }
  if (options.segment_bytes == 0) throw CLI::ValidationError("--segment", "must not be 0");
  if (options.duration_ns <= 0) throw CLI::ValidationError("--duration", "must not be 0");
  if (parsed->tier == "ssd") FinishSsd(parsed);
  if (parsed->tier != "ssd" && !options.server.ssd_dir.empty()) {
    throw CLI::ValidationError("--ssd-dir", "is of --tier ssd");
  }
  const bool one_client = options.op == TransferOp::kMatch || options.transport == "ucx";
  if (one_client && parsed->clients->count() == 0) options.clients = 1;
  if (options.transport == "ucx") {
    options.server.quarryd_flags.emplace_back("--ucx");
    if (!options.ucx_library.empty()) options.server.quarryd_flags.push_back("--ucx-library=" + options.ucx_library);
  }
  if (options.op != TransferOp::kMatch) return;
  if (parsed->memory->count() == 0) {
    options.server.memory_bytes =
        kMatchMemoryExtra +
        static_cast<uint64_t>(static_cast<double>(options.blocks * options.match_block_bytes) * kMatchMemoryFactor);
  }
}

void AddGrpcFlags(CLI::App* app, ParsedGrpc* parsed) {
  GrpcOptions& options = parsed->options;
  AddServerFlags(app, &options.server);
  Add(app, "--part", &parsed->parts, "What to measure")
      ->check(CLI::IsMember({"match", "get", "put", "observers"}))
      ->delimiter(',');
  AddDuration(app, "--duration", &options.duration_ns,
              "How long to measure each part, what it is compared with included");
  Add(app, "--pairs", &options.pairs, "Alternations of the two sides of a part")->check(CLI::Range(1u, 1000u));
  Add(app, "--blocks", &options.blocks, "match: blocks in the index");
  Add(app, "--hashes", &options.hashes, "match: hashes of one match")->check(CLI::Range(1u, kMaxBatch));
  app->add_flag("--lease", options.lease, "match: with a lease");
  AddSize(app, "--block", &options.block_bytes, "get, put, observers: payload of a block");
  Add(app, "--batch", &options.batch, "Blocks of one call")->check(CLI::Range(1u, kMaxBatch));
  Add(app, "--clients", &options.clients, "Clients of a side, one call under way each")
      ->check(CLI::Range(1u, kMaxClients));
  AddSize(app, "--arena", &options.arena_bytes, "Memory of all clients of a side together");
  AddSize(app, "--working-set", &options.working_set_bytes, "get, observers: distinct bytes in the server");
  AddSize(app, "--memory", &options.server.memory_bytes, "Memory of the private quarryd");
  Add(app, "--watchers", &options.watchers, "observers: watches that take one event a second")
      ->check(CLI::Range(0u, kMaxWatchers));
  app->add_flag("--scrape,!--no-scrape", options.scrape, "observers: /metrics and Stats once a second");
  Add(app, "--events", &options.events_per_s, "observers: blocks stored a second")->check(CLI::Range(1u, kMaxBatch));
  app->add_flag("--json", parsed->json, "Print JSON");
}

void FinishGrpc(ParsedGrpc* parsed) {
  GrpcOptions& options = parsed->options;
  const auto has = [&](const char* part) {
    return std::find(parsed->parts.begin(), parsed->parts.end(), part) != parsed->parts.end();
  };
  options.match = has("match");
  options.get = has("get");
  options.put = has("put");
  options.observers = has("observers");
  if (options.block_bytes == 0 || options.block_bytes % 8 != 0 || options.block_bytes > kMaxBlockBytes) {
    throw CLI::ValidationError("--block", "must be a multiple of 8 up to " + FormatBytes(kMaxBlockBytes));
  }
  if (options.blocks < uint64_t{options.hashes} * 2) {
    throw CLI::ValidationError("--blocks", "must be at least twice --hashes");
  }
  if (options.duration_ns <= 0) throw CLI::ValidationError("--duration", "must not be 0");
}

void AddSpillLoadFlags(CLI::App* app, ParsedSpillLoad* parsed) {
  SpillLoadOptions& options = parsed->options;
  AddPrivateServerFlags(app, &options.server);
  AddSsdFlags(app, &options.server);
  app->get_option("--ssd-dir")->required();
  AddSize(app, "--memory", &options.server.memory_bytes, "Memory of each private quarryd");
  AddSize(app, "--hot", &options.hot_bytes, "Distinct bytes that are got; at most a half of --memory");
  AddSize(app, "--block", &options.block_bytes, "Payload of a block");
  AddSize(app, "--segment", &options.segment_bytes, "Pieces of a block in the clients' memory");
  Add(app, "--batch", &options.batch, "Blocks of one get")->check(CLI::Range(1u, kMaxBatch));
  Add(app, "--inflight", &options.inflight, "Gets under way a client")->check(CLI::Range(1u, kMaxBatch));
  Add(app, "--clients", &options.clients, "Clients that get")->check(CLI::Range(1u, kMaxClients));
  Add(app, "--put-batch", &options.put_batch, "Blocks of one put")->check(CLI::Range(1u, kMaxBatch));
  AddSize(app, "--arena", &options.arena_bytes, "Memory of the clients that get, all together");
  Add(app, "--transport", &options.transport, "How the bytes travel")->check(CLI::IsMember({"tcp", "auto"}));
  AddDuration(app, "--step", &options.step_ns, "How long to measure one share of one round");
  Add(app, "--rounds", &options.rounds, "Rounds of all shares")->check(CLI::Range(1u, 1000u));
  Add(app, "--disk-depth", &options.disk_depth, "Requests that direct IO has in flight")
      ->check(CLI::Range(1u, kMaxDiskDepth));
  app->add_flag("--no-checksum", parsed->no_checksum, "The clients neither compute nor check checksums");
  app->add_flag("--json", parsed->json, "Print JSON");
}

void FinishSpillLoad(ParsedSpillLoad* parsed) {
  SpillLoadOptions& options = parsed->options;
  options.checksum = !parsed->no_checksum;
  if (options.block_bytes == 0 || options.block_bytes % 8 != 0 || options.block_bytes > kMaxBlockBytes) {
    throw CLI::ValidationError("--block", "must be a multiple of 8 up to " + FormatBytes(kMaxBlockBytes));
  }
  if (options.segment_bytes == 0 || options.segment_bytes % 8 != 0) {
    throw CLI::ValidationError("--segment", "must be a multiple of 8");
  }
  if (options.hot_bytes > options.server.memory_bytes / 2) {
    throw CLI::ValidationError("--hot",
                               "must be at most a half of --memory, " + FormatBytes(options.server.memory_bytes / 2));
  }
  if (options.step_ns <= 0) throw CLI::ValidationError("--step", "must not be 0");
}

void AddReplayFlags(CLI::App* app, ParsedReplay* parsed) {
  ReplayOptions& options = parsed->options;
  AddServerFlags(app, &options.server);
  Add(app, "--trace", &options.trace, "The trace: JSON lines")->required();
  Add(app, "--requests", &options.requests, "Only the first so many; 0: all");
  AddSize(app, "--block-bytes", &options.block_bytes, "Payload of a block of 512 tokens");
  AddSize(app, "--segment", &options.segment_bytes, "Pieces of a block in the engine's memory");
  Add(app, "--speed", &parsed->speed, "max, or how many times the trace's own pace");
  Add(app, "--concurrency", &options.concurrency, "Requests under way")->check(CLI::Range(1u, kMaxConcurrency));
  Add(app, "--clients", &options.clients, "Clients that they share")->check(CLI::Range(1u, kMaxClients));
  Add(app, "--streams", &options.streams, "Data connections a client")->check(CLI::Range(1u, kMaxStreams));
  Add(app, "--transport", &options.transport, "How the bytes travel")->check(CLI::IsMember({"tcp", "auto", "shm"}));
  AddSize(app, "--memory", &options.server.memory_bytes, "Memory of the private quarryd");
  AddSsdFlags(app, &options.server);
  CLI::Option* budget = AddSize(app, "--ssd-write-budget", &options.server.ssd_write_budget_bytes,
                                "Bytes a day that may be written to the SSD; 0: all that is cold");
  budget->needs(app->get_option("--ssd-dir"));
  AddSize(app, "--ssd-write-burst", &options.server.ssd_write_burst_bytes,
          "Most of it that may be saved up; 0: an hour of it, which is longer than a replay at speed takes")
      ->needs(budget);
  app->add_flag("--no-checksum", parsed->no_checksum, "The client neither computes nor checks checksums");
  app->add_flag("--json", parsed->json, "Print JSON");
}

void FinishReplay(ParsedReplay* parsed) {
  ReplayOptions& options = parsed->options;
  options.checksum = !parsed->no_checksum;
  options.progress = isatty(STDERR_FILENO) == 1;
  if (options.block_bytes == 0 || options.block_bytes % 8 != 0 || options.block_bytes > kMaxBlockBytes) {
    throw CLI::ValidationError("--block-bytes", "must be a multiple of 8 up to " + FormatBytes(kMaxBlockBytes));
  }
  if (options.segment_bytes == 0 || options.segment_bytes % 8 != 0) {
    throw CLI::ValidationError("--segment", "must be a multiple of 8");
  }
  if (!options.server.ssd_dir.empty() && options.server.ssd_bytes == 0) {
    throw CLI::ValidationError("--ssd-dir", "needs --ssd-size");
  }
  if (parsed->speed == "max") return;
  if (!absl::SimpleAtod(parsed->speed, &options.speed) || !(options.speed > 0) || options.speed > 1e6) {
    throw CLI::ValidationError("--speed", "must be max or a number above 0");
  }
}

}  // namespace quarry::bench
