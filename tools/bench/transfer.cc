#include "tools/bench/transfer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tools/bench/limit_process.h"
#include "tools/bench/server_stats.h"
#include "tools/bench/ssd_counters.h"
#include "tools/bench/workload.h"

namespace quarry::bench {
namespace {

// Of a match's request and reply on the wire, beside the hashes and the states: lengths,
// numbers, the lease.
constexpr uint64_t kMatchRequestOverhead = 24;
constexpr uint64_t kMatchReplyOverhead = 48;
constexpr uint64_t kHashBytesOnWire = 32;

std::vector<std::string> LimitArguments(const TransferOptions& options) {
  const std::string connections = absl::StrCat(options.clients * options.streams);
  if (options.op == TransferOp::kMatch) {
    return {"echo",
            "--request",
            absl::StrCat(options.hashes * kHashBytesOnWire + kMatchRequestOverhead),
            "--reply",
            absl::StrCat(options.hashes + kMatchReplyOverhead),
            "--connections",
            absl::StrCat(options.clients)};
  }
  std::vector<std::string> arguments;
  if (options.transport == "ucx") {
    arguments = {"ucx"};
    if (!options.ucx_library.empty()) arguments.insert(arguments.end(), {"--library", options.ucx_library});
  } else if (options.transport == "shm") {
    arguments = {"copy", "--by", options.buffers == Buffers::kMemfd ? "memcpy" : "process_vm", "--threads",
                 connections};
  } else {
    arguments = {"stream", "--connections", connections};
  }
  arguments.insert(
      arguments.end(),
      {"--op", options.op == TransferOp::kPut ? "put" : "get", "--block", absl::StrCat(options.block_bytes),
       "--segment", absl::StrCat(options.segment_bytes), "--server-arena", absl::StrCat(options.working_set_bytes),
       "--client-arena", absl::StrCat(options.arena_bytes)});
  return arguments;
}

std::vector<std::string> DiskArguments(const TransferOptions& options) {
  const bool put = options.op == TransferOp::kPut;
  return {"disk",
          "--op",
          put ? "write" : "read",
          "--dir",
          options.server.ssd_dir,
          "--block",
          absl::StrCat(options.block_bytes),
          "--total",
          absl::StrCat(put ? options.server.ssd_bytes : options.working_set_bytes),
          "--depth",
          absl::StrCat(options.disk_depth)};
}

// One run of Quarry and, with a limit, one of plain sockets beside it.
struct Pair {
  Slice slice;
  double server_cpu_s = 0;
  LimitRound limit;  // of sockets, when there are both
  LimitRound disk;
  double limit_gb_per_s = 0;  // the smaller one
};

class Runner {
 public:
  explicit Runner(const TransferOptions& options) : options_(options) {}

  absl::StatusOr<TransferReport> Run() {
    auto server = ServerUnderTest::Start(options_.server);
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    auto workload = MakeWorkload();
    if (!workload.ok()) return workload.status();
    workload_ = *std::move(workload);
    if (absl::Status status = StartLimit(); !status.ok()) return status;
    for (uint32_t i = 0; i < Pairs(); ++i) {
      if (absl::Status status = RunPair(i); !status.ok()) return status;
    }
    Summarise();
    if (absl::Status status = CheckLimit(); !status.ok()) return status;
    if (absl::Status status = AddIndexSize(); !status.ok()) return status;
    if (absl::Status status = AddSsdCounters(); !status.ok()) return status;
    workload_.reset();
    if (absl::Status status = server_->Stop(); !status.ok()) return status;
    return report_;
  }

 private:
  uint32_t Pairs() const { return options_.against_limit ? options_.pairs : 1; }
  bool IsSsd() const { return options_.tier == Tier::kSsd; }
  // A spill is held against the disk alone.
  bool NeedsSockets() const { return !IsSsd() || options_.op != TransferOp::kPut; }

  absl::StatusOr<std::unique_ptr<Workload>> MakeWorkload() {
    if (IsSsd()) return MakeSsdWorkload(options_, server_.get());
    if (options_.op == TransferOp::kMatch) return MakeMatchWorkload(options_, server_->transfer());
    return MakeDataWorkload(options_, server_->transfer());
  }

  absl::Status StartLimit() {
    if (!options_.against_limit) return absl::OkStatus();
    if (IsSsd()) {
      auto disk = LimitProcess::Start(DiskArguments(options_));
      if (!disk.ok()) return disk.status();
      disk_ = *std::move(disk);
    }
    if (!NeedsSockets()) return absl::OkStatus();
    if (options_.op != TransferOp::kMatch && options_.transport == "tcp") {
      auto iperf3 = RunIperf3(options_.clients * options_.streams);
      if (!iperf3.ok()) return iperf3.status();
      report_.iperf3_gb_per_s = *iperf3;
    }
    auto limit = LimitProcess::Start(LimitArguments(options_));
    if (!limit.ok()) return limit.status();
    limit_ = *std::move(limit);
    return absl::OkStatus();
  }

  // Which of the two goes first alternates, so that a drift of the machine favours neither.
  absl::Status RunPair(uint32_t number) {
    Pair pair;
    if (number % 2 == 0) RunQuarry(&pair);
    if (absl::Status status = RunLimit(limit_.get(), &pair.limit, &pair); !status.ok()) return status;
    if (absl::Status status = RunLimit(disk_.get(), &pair.disk, &pair); !status.ok()) return status;
    if (number % 2 == 1) RunQuarry(&pair);
    pairs_.push_back(std::move(pair));
    return absl::OkStatus();
  }

  absl::Status RunLimit(LimitProcess* limit, LimitRound* round, Pair* pair) {
    if (limit == nullptr) return absl::OkStatus();
    auto done = limit->Run(static_cast<double>(options_.duration_ns) / 1e9 / Pairs());
    if (!done.ok()) return done.status();
    *round = *std::move(done);
    const double rate = round->gb_per_s;
    pair->limit_gb_per_s = pair->limit_gb_per_s == 0 ? rate : std::min(pair->limit_gb_per_s, rate);
    return absl::OkStatus();
  }

  void RunQuarry(Pair* pair) {
    const std::optional<double> before = server_->CpuSeconds();
    pair->slice = workload_->Run(options_.duration_ns / Pairs());
    const std::optional<double> after = server_->CpuSeconds();
    has_cpu_ = before.has_value() && after.has_value();
    if (has_cpu_) pair->server_cpu_s = *after - *before;
  }

  // Of a spill: what was committed. Of the others: what the clients got or put.
  double Rate(const Slice& slice) const {
    if (NeedsSockets()) return slice.gb_per_s();
    return slice.ssd_ns == 0 ? 0 : static_cast<double>(slice.ssd_bytes) / static_cast<double>(slice.ssd_ns);
  }

  void Summarise() {
    Slice all;
    int64_t elapsed_ns = 0, ssd_ns = 0;
    double cpu_s = 0;
    for (const Pair& pair : pairs_) {
      all.Merge(pair.slice);
      elapsed_ns += pair.slice.elapsed_ns;
      ssd_ns += pair.slice.ssd_ns;
      cpu_s += pair.server_cpu_s;
    }
    all.elapsed_ns = elapsed_ns;
    all.ssd_ns = ssd_ns;
    report_.bytes = all.bytes;
    report_.gb_per_s = Rate(all);
    report_.ops_per_s = elapsed_ns == 0 ? 0 : static_cast<double>(all.ops) * 1e9 / static_cast<double>(elapsed_ns);
    report_.p50_us = all.latencies.PercentileUs(0.50);
    report_.p99_us = all.latencies.PercentileUs(0.99);
    report_.errors = all.errors;
    report_.wrong_bytes = all.wrong_bytes;
    report_.first_error = all.first_error;
    if (has_cpu_ && all.bytes > 0) report_.server_cpu_s_per_gb = cpu_s / (static_cast<double>(all.bytes) / 1e9);
    if (IsSsd()) SummariseSsd(all);
    if (!options_.against_limit) return;
    options_.op == TransferOp::kMatch ? SummariseEcho() : SummariseStream();
  }

  void SummariseSsd(const Slice& all) {
    SsdReport& ssd = report_.ssd.emplace();
    ssd.unspilled_blocks = all.unspilled_blocks;
    if (NeedsSockets()) {
      ssd.from_ssd = all.bytes == 0 ? 0 : static_cast<double>(all.ssd_bytes) / static_cast<double>(all.bytes);
    } else {
      ssd.put_gb_per_s = all.gb_per_s();
    }
    std::vector<double> disks, sockets;
    for (const Pair& pair : pairs_) {
      disks.push_back(pair.disk.gb_per_s);
      sockets.push_back(pair.limit.gb_per_s);
    }
    ssd.disk_gb_per_s = Median(disks);
    ssd.sockets_gb_per_s = Median(sockets);
    ssd.limit_io_engine = pairs_.back().disk.io_engine;
  }

  absl::Status AddSsdCounters() {
    if (!IsSsd()) return absl::OkStatus();
    auto counters = FetchSsdCounters(server_->metrics());
    if (!counters.ok()) return counters.status();
    report_.ssd->io_engine = counters->io_engine;
    report_.ssd->write_amplification = counters->write_amplification();
    return absl::OkStatus();
  }

  void SummariseStream() {
    std::vector<double> limits;
    for (const Pair& pair : pairs_) {
      limits.push_back(pair.limit_gb_per_s);
      report_.pair_ratios.push_back(pair.limit_gb_per_s > 0 ? Rate(pair.slice) / pair.limit_gb_per_s : 0);
    }
    report_.limit_gb_per_s = Median(limits);
    report_.limit_buffer_bytes = pairs_.back().limit.buffer_bytes;
    report_.ratio = Median(report_.pair_ratios);
  }

  // Sockets that were slower than iperf3 were no limit. Before that is said, iperf3 runs once more: the machine
  // may have been faster for a moment.
  absl::Status CheckLimit() {
    const double sockets = report_.ssd.has_value() ? report_.ssd->sockets_gb_per_s : report_.limit_gb_per_s;
    const auto is_below = [this, sockets] {
      return report_.iperf3_gb_per_s.has_value() && sockets < *report_.iperf3_gb_per_s;
    };
    if (!is_below()) return absl::OkStatus();
    auto again = RunIperf3(options_.clients * options_.streams);
    if (!again.ok()) return again.status();
    report_.iperf3_gb_per_s = std::min(*report_.iperf3_gb_per_s, again->value_or(*report_.iperf3_gb_per_s));
    // Where the disk is slower than both, it is the limit all the same.
    report_.limit_void = is_below() && sockets <= report_.limit_gb_per_s;
    return absl::OkStatus();
  }

  void SummariseEcho() {
    std::vector<double> p50s, p99s, rates, p99_ratios;
    const double seconds = static_cast<double>(options_.duration_ns) / 1e9 / Pairs();
    for (const Pair& pair : pairs_) {
      p50s.push_back(pair.limit.p50_us);
      p99s.push_back(pair.limit.p99_us);
      rates.push_back(static_cast<double>(pair.limit.ops) * options_.hashes * kHashBytesOnWire / seconds / 1e9);
      const double p50 = pair.slice.latencies.PercentileUs(0.50);
      report_.pair_ratios.push_back(p50 > 0 ? pair.limit.p50_us / p50 : 0);
      p99_ratios.push_back(pair.limit.p99_us > 0 ? pair.slice.latencies.PercentileUs(0.99) / pair.limit.p99_us : 0);
    }
    report_.limit_gb_per_s = Median(rates);
    report_.limit_p50_us = Median(p50s);
    report_.limit_p99_us = Median(p99s);
    report_.ratio = Median(report_.pair_ratios);
    report_.p99_over_limit = Median(p99_ratios);
  }

  absl::Status AddIndexSize() {
    if (options_.op != TransferOp::kMatch || server_->grpc().empty()) return absl::OkStatus();
    auto stats = FetchServerStats(server_->grpc());
    if (!stats.ok()) return stats.status();
    if (stats->blocks > 0) {
      report_.index_bytes_per_block = static_cast<double>(stats->index_bytes) / static_cast<double>(stats->blocks);
    }
    return absl::OkStatus();
  }

  const TransferOptions& options_;
  TransferReport report_;
  std::unique_ptr<ServerUnderTest> server_;
  std::unique_ptr<LimitProcess> limit_;
  std::unique_ptr<LimitProcess> disk_;
  std::unique_ptr<Workload> workload_;
  std::vector<Pair> pairs_;
  bool has_cpu_ = false;
};

}  // namespace

absl::StatusOr<TransferReport> RunTransfer(const TransferOptions& options) { return Runner(options).Run(); }

}  // namespace quarry::bench
