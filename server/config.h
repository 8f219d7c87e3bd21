// The settings of quarryd: flags, QUARRY_* variables and a TOML file, in that order of
// precedence. settings.cc has the one table of them.
#ifndef QUARRY_SERVER_CONFIG_H_
#define QUARRY_SERVER_CONFIG_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace quarry::server {

inline constexpr uint64_t kMinMemoryBytes = 128ull << 20;

struct ServerConfig {
  uint64_t memory_bytes = 0;  // all of it; 0: a share of the memory limit
  uint64_t slab_bytes = 0;    // 0: chosen from the arena's size
  bool no_prefault = false;
  std::vector<std::string> ssd_dirs;
  uint64_t ssd_bytes = 0;         // of each directory; 0: none was given
  uint64_t ssd_extent_bytes = 0;  // 0: chosen from ssd_bytes
  std::string ssd_io = "auto";
  std::string ssd_on_newer = "refuse";
  uint64_t ssd_write_budget_bytes = 0;  // a day, to all of them; 0: without a bound
  uint64_t ssd_write_burst_bytes = 0;   // 0: an hour of the budget
  uint32_t index_shards = 64;
  int64_t max_lease_ns = 60'000'000'000;
  uint32_t max_lease_blocks = 64 << 10;
  uint32_t max_leased_blocks = 4 << 20;

  std::vector<std::string> listen_grpc = {"127.0.0.1:7420"};
  std::vector<std::string> listen_transfer = {"127.0.0.1:7421"};
  std::vector<std::string> listen_metrics = {"127.0.0.1:9420"};
  std::string advertise_grpc;  // empty: the first address listened on
  std::string advertise_transfer;
  std::string advertise_metrics;
  std::string socket = "auto";  // "auto", "none" (or empty), or a path
  bool insecure = false;
  bool ucx = false;
  bool ucx_trusted_fabric = false;  // and ucx
  std::string ucx_library;          // empty: libucp.so.0
  std::string ucx_rma = "auto";

  uint32_t control_threads = 1;
  int64_t control_spin_ns = 200'000;
  uint32_t data_threads = 2;
  uint32_t max_sessions = 4096;
  int64_t grpc_stream_idle_ns = 30'000'000'000;
  int64_t drain_timeout_ns = 10'000'000'000;
  std::string node_name;  // empty: the host's name
  std::string log_level = "info";
  std::string log_format = "text";

  // The settings that were given, as text, by name: what a reload compares.
  std::map<std::string, std::string> given;
};

struct CommandLine {
  std::optional<ServerConfig> config;  // not set: print and exit
  int exit_code = 0;                   // 0: --help or --version; 2: bad usage
  std::string output;                  // for stdout when exit_code is 0, else stderr
  std::string check_dir;               // --check: this, and nothing else, is wanted
};

// Reads flags, environment and the file that --config names.
CommandLine ParseCommandLine(int argc, const char* const* argv);

// Whether a changed value takes effect on SIGHUP.
bool IsReloadable(const std::string& setting);
// Names of the settings in which the two differ.
std::vector<std::string> ChangedSettings(const ServerConfig& before, const ServerConfig& after);

// Refuses addresses beyond loopback unless config.insecure; the message names the flag.
absl::Status CheckExposure(const ServerConfig& config);

// --ssd-dir and --ssd-size go together, and --memory has room for them; the message names the
// flag.
absl::Status CheckSsd(const ServerConfig& config);

// How --memory is divided.
struct MemoryPlan {
  uint64_t total_bytes = 0;
  uint64_t arena_bytes = 0;      // payload
  uint64_t ssd_index_bytes = 0;  // for what finds blocks on SSDs
  uint64_t catalog_bytes = 0;    // for each disk's RocksDB
  uint64_t reserve_bytes = 0;    // index, sessions, socket buffers, gRPC, the program itself
};
// The reserve is 7 % of the whole and at least 64 MiB. With SSDs, 5 % more are for the index
// of what lies on them, and 1 %, 16 to 64 MiB, for each one's catalog. The arena is the rest.
MemoryPlan PlanMemory(uint64_t total_bytes, uint32_t ssds);
// Memory of the index for one record on an SSD.
inline constexpr uint64_t kSsdRecordBytes = 160;
// config.memory_bytes, or 70 % of the memory limit when that is 0.
absl::StatusOr<uint64_t> TotalMemory(const ServerConfig& config);

// The path of the Unix socket, empty for none: "auto" is quarryd.sock in /run/quarry, else
// in $XDG_RUNTIME_DIR, whichever is there and writable.
std::string SocketPath(const ServerConfig& config);

}  // namespace quarry::server

#endif  // QUARRY_SERVER_CONFIG_H_
