#include "server/settings.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/net/socket.h"
#include "common/units.h"

namespace quarry::server {
namespace {

using Values = std::vector<std::string>;

constexpr uint64_t kMaxMemoryBytes = 64ull << 40;
constexpr uint64_t kMinSlabBytes = 1ull << 20;
constexpr uint64_t kMaxSlabBytes = 1ull << 30;
constexpr uint32_t kMaxIndexShards = 4096;
constexpr uint32_t kMaxThreads = 256;
constexpr uint32_t kMaxMaxSessions = 1'000'000;
constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kMinLeaseNs = 100 * kMillisecond;
constexpr int64_t kMaxLeaseNs = 3'600'000 * kMillisecond;
constexpr uint32_t kMaxLeaseBlocks = 64 << 10;  // of one match
constexpr uint32_t kMaxLeasedBlocks = 1 << 30;
constexpr int64_t kMinStreamIdleNs = 100 * kMillisecond;
constexpr int64_t kMaxStreamIdleNs = 3'600'000 * kMillisecond;
constexpr int64_t kMaxDrainNs = 3'600'000 * kMillisecond;
constexpr size_t kMaxAddresses = 16;
constexpr size_t kMaxSsdDirs = 64;
constexpr size_t kMaxPathBytes = 4096;
constexpr uint64_t kMinSsdBytes = 64ull << 20;
constexpr uint64_t kMaxSsdBytes = 1ull << 50;
constexpr uint64_t kMinExtentBytes = 4ull << 20;
constexpr uint64_t kMaxExtentBytes = 4ull << 30;
constexpr uint64_t kMinWriteBudgetBytes = 1ull << 20;
constexpr size_t kMaxNodeNameBytes = 253;    // as long as a host name
constexpr size_t kMaxSocketPathBytes = 107;  // sockaddr_un's, without the final 0

absl::Status Below(absl::string_view value, absl::string_view bound) {
  return absl::InvalidArgumentError(absl::StrCat(value, " is below the least, ", bound));
}

absl::Status Above(absl::string_view value, absl::string_view bound) {
  return absl::InvalidArgumentError(absl::StrCat(value, " is above the most, ", bound));
}

Setting Size(std::string name, std::string help, uint64_t* out, uint64_t least, uint64_t most) {
  return {std::move(name), Setting::Kind::kValue, "SIZE", std::move(help), false, [=](const Values& values) {
            const absl::StatusOr<uint64_t> bytes = ParseBytes(values[0]);
            if (!bytes.ok()) return bytes.status();
            if (*bytes < least) return Below(values[0], FormatBytes(least));
            if (*bytes > most) return Above(values[0], FormatBytes(most));
            *out = *bytes;
            return absl::OkStatus();
          }};
}

Setting Time(std::string name, std::string help, int64_t* out, int64_t least, int64_t most) {
  return {std::move(name), Setting::Kind::kValue, "TIME", std::move(help), false, [=](const Values& values) {
            const absl::StatusOr<int64_t> ns = ParseDuration(values[0]);
            if (!ns.ok()) return ns.status();
            if (*ns < least) return Below(values[0], FormatDuration(least));
            if (*ns > most) return Above(values[0], FormatDuration(most));
            *out = *ns;
            return absl::OkStatus();
          }};
}

Setting Number(std::string name, std::string help, uint32_t* out, uint32_t least, uint32_t most) {
  return {std::move(name), Setting::Kind::kValue, "N", std::move(help), false, [=](const Values& values) {
            uint32_t number = 0;
            if (!absl::SimpleAtoi(values[0], &number)) {
              return absl::InvalidArgumentError(
                  absl::StrCat("\"", values[0], "\" is not a whole number from ", least, " to ", most));
            }
            if (number < least) return Below(values[0], absl::StrCat(least));
            if (number > most) return Above(values[0], absl::StrCat(most));
            *out = number;
            return absl::OkStatus();
          }};
}

Setting OneOf(std::string name, std::string help, std::string* out, Values choices) {
  std::string type = absl::StrJoin(choices, "|");
  return {std::move(name),
          Setting::Kind::kValue,
          type,
          std::move(help),
          false,
          [out, type, choices = std::move(choices)](const Values& values) {
            if (std::find(choices.begin(), choices.end(), values[0]) == choices.end()) {
              return absl::InvalidArgumentError(absl::StrCat("\"", values[0], "\" is none of ", type));
            }
            *out = values[0];
            return absl::OkStatus();
          }};
}

Setting Text(std::string name, std::string type, std::string help, std::string* out, size_t most_bytes) {
  return {std::move(name), Setting::Kind::kValue, std::move(type), std::move(help), false, [=](const Values& values) {
            if (values[0].size() > most_bytes) {
              return absl::InvalidArgumentError(absl::StrCat(values[0].size(), " bytes, at most ", most_bytes));
            }
            *out = values[0];
            return absl::OkStatus();
          }};
}

Setting Addresses(std::string name, std::string help, Values* out) {
  return {std::move(name), Setting::Kind::kList, "HOST:PORT,...", std::move(help), false, [=](const Values& values) {
            if (values.size() > kMaxAddresses) {
              return absl::InvalidArgumentError(absl::StrCat(values.size(), " addresses, at most ", kMaxAddresses));
            }
            for (const std::string& value : values) {
              if (absl::StatusOr<HostPort> address = ParseHostPort(value); !address.ok()) return address.status();
            }
            *out = values;
            return absl::OkStatus();
          }};
}

Setting Directories(std::string name, std::string help, Values* out) {
  return {std::move(name), Setting::Kind::kList, "DIR,...", std::move(help), false, [=](const Values& values) {
            if (values.size() > kMaxSsdDirs) {
              return absl::InvalidArgumentError(absl::StrCat(values.size(), " directories, at most ", kMaxSsdDirs));
            }
            for (size_t i = 0; i < values.size(); ++i) {
              if (values[i].empty() || values[i].size() > kMaxPathBytes) {
                return absl::InvalidArgumentError(
                    absl::StrCat("a path of ", values[i].size(), " bytes, not 1 to ", kMaxPathBytes));
              }
              if (std::find(values.begin(), values.begin() + static_cast<ptrdiff_t>(i), values[i]) !=
                  values.begin() + static_cast<ptrdiff_t>(i)) {
                return absl::InvalidArgumentError(absl::StrCat("\"", values[i], "\" is given twice"));
              }
            }
            *out = values;
            return absl::OkStatus();
          }};
}

Setting Address(std::string name, std::string help, std::string* out) {
  return {std::move(name), Setting::Kind::kValue, "HOST:PORT", std::move(help), false, [=](const Values& values) {
            if (absl::StatusOr<HostPort> address = ParseHostPort(values[0]); !address.ok()) return address.status();
            *out = values[0];
            return absl::OkStatus();
          }};
}

Setting Switch(std::string name, std::string help, bool* out) {
  return {std::move(name), Setting::Kind::kSwitch, "", std::move(help), false, [=](const Values&) {
            *out = true;
            return absl::OkStatus();
          }};
}

Setting Reloadable(Setting setting) {
  setting.reloadable = true;
  return setting;
}

void AppendMemory(ServerConfig* c, std::vector<Setting>* out) {
  out->push_back(Size("memory", "All memory of the daemon; default: 70% of the control group's or machine's",
                      &c->memory_bytes, kMinMemoryBytes, kMaxMemoryBytes));
  out->push_back(Size("slab", "Unit in which the arena is dealt to size classes; default: chosen from --memory",
                      &c->slab_bytes, kMinSlabBytes, kMaxSlabBytes));
  out->push_back(Switch("no-prefault", "Do not touch the whole arena at the start", &c->no_prefault));
  out->push_back(Number("index-shards", "Parts of the index, each with its lock; default: 64", &c->index_shards, 1,
                        kMaxIndexShards));
  out->push_back(Time("max-lease", "Longest lease granted; default: 60s", &c->max_lease_ns, kMinLeaseNs, kMaxLeaseNs));
  out->push_back(
      Number("max-lease-blocks", "Most blocks of one lease; default: 65536", &c->max_lease_blocks, 1, kMaxLeaseBlocks));
  out->push_back(Number("max-leased-blocks", "Most blocks of all leases, each counted in every one; default: 4194304",
                        &c->max_leased_blocks, 1, kMaxLeasedBlocks));
}

void AppendSsd(ServerConfig* c, std::vector<Setting>* out) {
  out->push_back(
      Directories("ssd-dir", "Directory on an SSD to which blocks spill, may repeat: a disk each", &c->ssd_dirs));
  out->push_back(Size("ssd-size", "Bytes of blocks kept in each --ssd-dir", &c->ssd_bytes, kMinSsdBytes, kMaxSsdBytes));
  out->push_back(Size("ssd-extent", "Size of the files that blocks are written to; default: chosen from --ssd-size",
                      &c->ssd_extent_bytes, kMinExtentBytes, kMaxExtentBytes));
  out->push_back(OneOf("ssd-io", "How SSDs are read and written; default: auto (the first of these that works)",
                       &c->ssd_io, {"auto", "io_uring", "libaio", "threads"}));
  out->push_back(Size("ssd-write-budget", "Bytes a day that may be written to all SSDs; without it all cold blocks are",
                      &c->ssd_write_budget_bytes, kMinWriteBudgetBytes, kMaxSsdBytes));
  out->push_back(Size("ssd-write-burst",
                      "Most of it that may be saved up and written at once; an hour of it if not given",
                      &c->ssd_write_burst_bytes, kMinWriteBudgetBytes, kMaxSsdBytes));
  out->push_back(OneOf("ssd-on-newer", "What to do where a newer version has written; default: refuse",
                       &c->ssd_on_newer, {"refuse", "wipe"}));
}

void AppendAddresses(ServerConfig* c, std::vector<Setting>* out) {
  out->push_back(Addresses("listen-grpc", "gRPC, may repeat; default: 127.0.0.1:7420", &c->listen_grpc));
  out->push_back(
      Addresses("listen-transfer", "Sessions and data, may repeat; default: 127.0.0.1:7421", &c->listen_transfer));
  out->push_back(Addresses("listen-metrics", "/metrics, /livez, /readyz, may repeat; default: 127.0.0.1:9420",
                           &c->listen_metrics));
  out->push_back(Address("advertise-grpc", "gRPC address that others see", &c->advertise_grpc));
  out->push_back(Address("advertise-transfer", "Transfer address that others see", &c->advertise_transfer));
  out->push_back(Address("advertise-metrics", "Metrics address that others see", &c->advertise_metrics));
  out->push_back(Text("socket", "PATH",
                      "Unix socket for sessions, or none; default: auto (in /run/quarry or $XDG_RUNTIME_DIR)",
                      &c->socket, kMaxSocketPathBytes));
  out->push_back(Switch("insecure", "Allow addresses beyond loopback without TLS and tokens", &c->insecure));
  out->push_back(Switch("ucx", "Let clients on this host move payload by UCX, which believes what they say", &c->ucx));
  out->push_back(Switch("ucx-trusted-fabric",
                        "The same for all clients, over whatever network UCX finds; nothing there is encrypted",
                        &c->ucx_trusted_fabric));
  out->push_back(
      Text("ucx-library", "PATH", "The libucp to load; default: libucp.so.0", &c->ucx_library, kMaxPathBytes));
  out->push_back(OneOf("ucx-rma", "Whether RDMA adapters reach clients' registered memory themselves; default: auto",
                       &c->ucx_rma, {"never", "auto", "always"}));
}

void AppendRunning(ServerConfig* c, std::vector<Setting>* out) {
  out->push_back(Number("control-threads", "Threads for requests; default: 1", &c->control_threads, 1, kMaxThreads));
  out->push_back(Time("control-spin",
                      "Longest time that they stay awake for the next request where requests come fast; default: 200us",
                      &c->control_spin_ns, 0, kMillisecond));
  out->push_back(Number("data-threads", "Threads that move payload; default: 2", &c->data_threads, 1, kMaxThreads));
  out->push_back(Number("max-sessions", "Sessions open at once; default: 4096", &c->max_sessions, 1, kMaxMaxSessions));
  out->push_back(Time("grpc-stream-idle", "Longest wait for the client in a gRPC get or put; default: 30s",
                      &c->grpc_stream_idle_ns, kMinStreamIdleNs, kMaxStreamIdleNs));
  out->push_back(Time("drain-timeout", "Longest wait for transfers when stopping; default: 10s", &c->drain_timeout_ns,
                      0, kMaxDrainNs));
  out->push_back(Text("node-name", "NAME", "Name of this node; default: the host's", &c->node_name, kMaxNodeNameBytes));
  out->push_back(Reloadable(OneOf("log-level", "Least level that is logged; default: info", &c->log_level,
                                  {"trace", "debug", "info", "warn", "error", "off"})));
  out->push_back(OneOf("log-format", "Form of a log line; default: text", &c->log_format, {"text", "json"}));
}

}  // namespace

std::vector<Setting> Settings(ServerConfig* config) {
  std::vector<Setting> settings;
  AppendMemory(config, &settings);
  AppendSsd(config, &settings);
  AppendAddresses(config, &settings);
  AppendRunning(config, &settings);
  return settings;
}

std::string DefaultOf(const Setting& setting) {
  if (setting.kind == Setting::Kind::kSwitch) return "false";
  constexpr absl::string_view kMark = "default: ";
  const size_t mark = setting.help.rfind(std::string(kMark));
  return mark == std::string::npos ? "" : setting.help.substr(mark + kMark.size());
}

std::string EnvironmentName(const std::string& setting) {
  return absl::StrCat("QUARRY_", absl::AsciiStrToUpper(absl::StrReplaceAll(setting, {{"-", "_"}})));
}

}  // namespace quarry::server
