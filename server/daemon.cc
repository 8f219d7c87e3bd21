#include "server/daemon.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/clock.h"
#include "common/units.h"
#include "server/grpc/stream_limits.h"
#include "server/logging.h"
#include "server/metrics/exporter.h"
#include "server/settings.h"

namespace quarry::server {
namespace {

constexpr absl::string_view kLogLevel = "log-level";
// Blocks that are written to an SSD together stay in memory until they are there: at most so
// many bytes, and such a share of the arena.
constexpr uint64_t kMaxGroupBytes = 64 << 20;
constexpr uint64_t kGroupShare = 16;

absl::StatusOr<std::vector<HostPort>> ParseAll(const std::vector<std::string>& addresses) {
  std::vector<HostPort> parsed;
  for (const std::string& address : addresses) {
    absl::StatusOr<HostPort> one = ParseHostPort(address);
    if (!one.ok()) return one.status();
    parsed.push_back(*std::move(one));
  }
  return parsed;
}

uint32_t MaxSsdRecords(const MemoryPlan& memory) {
  return static_cast<uint32_t>(std::min<uint64_t>(memory.ssd_index_bytes / kSsdRecordBytes, 1u << 31));
}

// Whether the addresses can be had, before the arena is reserved, which takes its time,
// and with a reason, which gRPC does not give.
absl::Status Probe(absl::string_view flag, const std::vector<std::string>& addresses) {
  const absl::StatusOr<std::vector<HostPort>> parsed = ParseAll(addresses);
  if (!parsed.ok()) return parsed.status();
  for (const HostPort& address : *parsed) {
    HostPort bound;
    const absl::StatusOr<UniqueFd> fd = ListenTcp(address, &bound);
    if (!fd.ok()) return {fd.status().code(), absl::StrCat("--", flag, ": ", fd.status().message())};
  }
  return absl::OkStatus();
}

std::string HostName() {
  char name[256] = "";
  if (gethostname(name, sizeof(name) - 1) != 0) return "unnamed";
  return name;
}

std::string Shown(const std::string& advertised, const std::vector<HostPort>& bound) {
  return advertised.empty() ? FormatHostPort(bound.front()) : advertised;
}

std::string Listed(const std::vector<HostPort>& bound) {
  return absl::StrJoin(bound, ",", [](std::string* out, const HostPort& a) { out->append(FormatHostPort(a)); });
}

std::vector<AdminHooks::ConfigValue> ValuesInForce(ServerConfig config) {
  std::vector<AdminHooks::ConfigValue> values;
  for (const Setting& setting : Settings(&config)) {
    const auto given = config.given.find(setting.name);
    const bool is_given = given != config.given.end();
    values.push_back(
        {setting.name, is_given ? given->second : DefaultOf(setting), is_given, setting.reloadable, setting.help});
    if (setting.name == kLogLevel) values.back().value = LogLevel();
  }
  return values;
}

absl::StatusOr<std::string> ChangeLogLevel(const std::string& level) {
  ServerConfig checked;
  for (const Setting& setting : Settings(&checked)) {
    if (setting.name != kLogLevel) continue;
    if (absl::Status status = setting.set({level}); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("level: ", status.message()));
    }
  }
  std::string before = LogLevel();
  SetLogLevel(level);
  return before;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const ServerConfig& config) {
  std::unique_ptr<Daemon> daemon(new Daemon);
  if (absl::Status status = daemon->Open(config); !status.ok()) return status;
  return daemon;
}

Daemon::~Daemon() = default;

absl::Status Daemon::Open(const ServerConfig& config) {
  node_name_ = config.node_name.empty() ? HostName() : config.node_name;
  socket_path_ = SocketPath(config);
  advertise_grpc_ = config.advertise_grpc;
  advertise_transfer_ = config.advertise_transfer;
  advertise_metrics_ = config.advertise_metrics;

  absl::Status status = Probe("listen-grpc", config.listen_grpc);
  if (status.ok()) status = Probe("listen-transfer", config.listen_transfer);
  if (status.ok()) status = Probe("listen-metrics", config.listen_metrics);
  if (status.ok()) status = OpenStore(config);
  if (status.ok()) status = OpenMetrics(config);
  if (status.ok()) status = OpenSsd(config);
  if (status.ok()) status = OpenSessions(config);
  if (status.ok()) status = OpenGrpc(config);
  if (!status.ok()) return status;
  UpdateHealth(Clock::Real()->NowNs());
  ready_.store(true);
  spdlog::info("node {} {} serves gRPC on {}, transfer on {}, metrics on {}, socket {}", node_name_, QUARRY_VERSION,
               Listed(grpc_->addresses()), Listed(sessions_->addresses()), Listed(http_->addresses()),
               socket_path_.empty() ? "none" : socket_path_);
  return absl::OkStatus();
}

absl::Status Daemon::OpenStore(const ServerConfig& config) {
  const absl::StatusOr<uint64_t> total = TotalMemory(config);
  if (!total.ok()) return total.status();
  memory_ = PlanMemory(*total, static_cast<uint32_t>(config.ssd_dirs.size()));
  spdlog::info("memory {}: arena {}, reserve {} for index, sessions and buffers", FormatBytes(memory_.total_bytes),
               FormatBytes(memory_.arena_bytes), FormatBytes(memory_.reserve_bytes));
  BlockStoreOptions options;
  options.arena_bytes = memory_.arena_bytes;
  options.slab_bytes = config.slab_bytes;
  options.prefault = !config.no_prefault;
  options.index_shards = config.index_shards;
  options.max_lease_ms = static_cast<uint32_t>(config.max_lease_ns / 1'000'000);
  options.max_lease_blocks = config.max_lease_blocks;
  options.max_leased_blocks = config.max_leased_blocks;
  options.max_ssd_records = MaxSsdRecords(memory_);
  absl::StatusOr<std::unique_ptr<BlockStore>> store = BlockStore::Create(options, Clock::Real());
  if (!store.ok()) return store.status();
  store_ = *std::move(store);
  wire::Limits limits;
  limits.max_lease_ms = options.max_lease_ms;
  service_ = std::make_unique<CacheService>(&namespaces_, store_.get(), &metrics_, limits);
  return absl::OkStatus();
}

// Takes as long as its catalogs are large.
absl::Status Daemon::OpenSsd(const ServerConfig& config) {
  if (!config.ssd_dirs.empty()) {
    SsdTierOptions ssd;
    ssd.max_records = MaxSsdRecords(memory_);
    ssd.write_budget_bytes_per_day = config.ssd_write_budget_bytes;
    ssd.write_burst_bytes =
        config.ssd_write_burst_bytes != 0 ? config.ssd_write_burst_bytes : config.ssd_write_budget_bytes / 24;
    for (const std::string& dir : config.ssd_dirs) {
      SsdDiskOptions& disk = ssd.disks.emplace_back();
      disk.dir = dir;
      disk.max_bytes = config.ssd_bytes;
      disk.extent_bytes = config.ssd_extent_bytes;
      disk.group_bytes = std::min(kMaxGroupBytes, memory_.arena_bytes / kGroupShare / config.ssd_dirs.size());
      disk.catalog_memory_bytes = memory_.catalog_bytes;
      disk.wipe_newer = config.ssd_on_newer == "wipe";
      disk.io_engine = *ParseIoEngineKind(config.ssd_io);
    }
    if (absl::Status status = store_->OpenSsd(ssd, &namespaces_); !status.ok()) return status;
  }
  recovered_.store(true);
  return absl::OkStatus();
}

absl::Status Daemon::OpenSessions(const ServerConfig& config) {
  SessionServerOptions options;
  options.listen = config.listen_transfer;
  options.unix_socket_path = socket_path_;
  options.control_threads = config.control_threads;
  options.most_spin_ns = config.control_spin_ns;
  options.data_threads = config.data_threads;
  options.max_sessions = config.max_sessions;
  max_sessions_ = config.max_sessions;
  options.node_name = node_name_;
  if (config.ucx || config.ucx_trusted_fabric) {
    const absl::Span<std::byte> arena = store_->arena();
    options.ucx = {.libucp = config.ucx_library,
                   .trusted_fabric = config.ucx_trusted_fabric,
                   .rma = transport::RmaNamed(config.ucx_rma),
                   .slots = {arena.data(), arena.size()}};
  }
  absl::StatusOr<std::unique_ptr<SessionServer>> sessions =
      SessionServer::Create(std::move(options), service_.get(), &metrics_);
  if (!sessions.ok()) return sessions.status();
  sessions_ = *std::move(sessions);
  return absl::OkStatus();
}

absl::Status Daemon::OpenGrpc(const ServerConfig& config) {
  absl::StatusOr<std::vector<HostPort>> listen = ParseAll(config.listen_grpc);
  if (!listen.ok()) return listen.status();
  AdminHooks hooks;
  hooks.config = [config] { return ValuesInForce(config); };
  hooks.drain = [this] { DrainFromAfar(); };
  hooks.set_log_level = ChangeLogLevel;
  hooks.health = [this] { return health_.report(); };
  absl::StatusOr<std::unique_ptr<GrpcServer>> grpc = GrpcServer::Create(
      {*std::move(listen), QUARRY_VERSION, std::move(hooks), config.grpc_stream_idle_ns}, service_.get());
  if (!grpc.ok()) return grpc.status();
  grpc_ = *std::move(grpc);
  return absl::OkStatus();
}

absl::Status Daemon::OpenMetrics(const ServerConfig& config) {
  absl::StatusOr<std::vector<HostPort>> listen = ParseAll(config.listen_metrics);
  if (!listen.ok()) return listen.status();
  ExporterSources sources;
  sources.store = [this] { return recovered_.load() ? store_->stats() : StoreStats(); };
  sources.tenant_bytes = [this] { return store_->tenant_bytes(); };
  sources.disks = [this] {
    const SsdTier* ssd = recovered_.load() ? store_->ssd() : nullptr;
    return ssd == nullptr ? std::vector<SsdDiskStats>() : ssd->stats();
  };
  sources.draining = [this] { return service_->draining(); };
  sources.service = &metrics_;
  sources.version = QUARRY_VERSION;
  sources.node_name = node_name_;

  HttpEndpointOptions options;
  options.listen = *std::move(listen);
  options.metrics = [exporter = std::make_shared<Exporter>(std::move(sources))] { return exporter->Text(); };
  options.not_ready = [this] { return WhyNotReady(); };
  absl::StatusOr<std::unique_ptr<HttpEndpoint>> http = HttpEndpoint::Create(std::move(options));
  if (!http.ok()) return http.status();
  http_ = *std::move(http);
  return absl::OkStatus();
}

std::string Daemon::ReadyLine() const {
  return absl::StrCat("quarryd ready grpc=", Shown(advertise_grpc_, grpc_->addresses()),
                      " transfer=", Shown(advertise_transfer_, sessions_->addresses()),
                      " metrics=", Shown(advertise_metrics_, http_->addresses()), " socket=", socket_path_);
}

void Daemon::Tick() {
  store_->Tick();
  grpc_->Tick();
  if (drain_wanted_.exchange(false)) Drain();
  const int64_t now_ns = Clock::Real()->NowNs();
  if (now_ns >= health_updated_ns_ + Health::kPeriodNs) UpdateHealth(now_ns);
}

// On any thread, perhaps before all parts stand: new work is refused at once, and the next
// tick does the rest.
void Daemon::DrainFromAfar() {
  spdlog::info("draining, as asked over gRPC");
  service_->Drain();
  drain_wanted_.store(true);
}

void Daemon::UpdateHealth(int64_t now_ns) {
  const StoreStats stats = store_->stats();
  const SessionHealth sessions = sessions_->CheckHealth();
  const StreamLimits& streams = grpc_->stream_limits();
  const HttpEndpoint::Connections http = http_->connections();
  const auto use_of = [](const Quota& quota) { return HealthInputs::Use{quota.taken(), quota.most()}; };
  HealthInputs inputs;
  inputs.now_ns = now_ns;
  inputs.draining = service_->draining();
  inputs.used = {stats.used_bytes, stats.arena_bytes};
  inputs.leased_bytes = stats.leased_bytes;
  inputs.refused_puts = stats.refusals[static_cast<int>(RefusalReason::kNoSpace)];
  inputs.stored_shards = stats.stored_shards;
  inputs.corrupt = stats.misses[static_cast<int>(MissCause::kCorrupt)] + metrics_.corrupt_items.load();
  inputs.sessions = {metrics_.sessions.load(), max_sessions_};
  inputs.accepting = sessions.accepting;
  inputs.control_late_ns = sessions.control_late_ns;
  inputs.data_late_ns = sessions.data_late_ns;
  inputs.transfers_queued = metrics_.transfers_queued.load();
  inputs.bytes_in_flight = metrics_.bytes_in_flight.load();
  inputs.gets = use_of(streams.gets);
  inputs.puts = use_of(streams.puts);
  inputs.watches = use_of(streams.watches);
  inputs.http_connections = {http.now, http.most};
  if (store_->ssd() != nullptr) {
    for (const SsdDiskStats& disk : store_->ssd()->stats()) {
      inputs.ssds.push_back({disk.dir, disk.log.writing, disk.log.last_error});
    }
  }
  health_.Update(inputs);
  health_updated_ns_ = now_ns;
}

std::string Daemon::WhyNotReady() const {
  if (!ready_.load()) return recovered_.load() ? "starting" : "reading the catalogs of the SSDs";
  return service_->draining() ? "draining" : health_.WhyNotReady();
}

void Daemon::Drain() {
  service_->Drain();
  grpc_->Drain();
  sessions_->Drain();
}

bool Daemon::Idle() {
  if (!sessions_->Idle()) return false;
  store_->SpillAll();
  return store_->SpilledAll();
}

}  // namespace quarry::server
