#include "tools/bench/grpc.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/allocator.h"
#include "tools/bench/bench_spec.h"
#include "tools/bench/churn.h"
#include "tools/bench/grpc_workload.h"
#include "tools/bench/observers.h"
#include "tools/bench/workload.h"

namespace quarry::bench {
namespace {

constexpr uint64_t kMatchBlockBytes = 4 << 10;
class GrpcRunner {
 public:
  explicit GrpcRunner(const GrpcOptions& options) : options_(options) {}

  absl::StatusOr<GrpcReport> Run() {
    KeepFreedMemory();  // as the server does
    auto server = ServerUnderTest::Start(options_.server);
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    if (server_->grpc().empty()) return absl::InvalidArgumentError("--server needs --server-grpc");
    absl::Status status;
    if (options_.match) status = RunMatch();
    if (status.ok() && options_.get) status = RunBytes(TransferOp::kGet, &report_.get.emplace(GrpcReport::Bytes{}));
    if (status.ok() && options_.observers) status = RunObservers();
    // Last, because it evicts what the gets look for.
    if (status.ok() && options_.put) status = RunBytes(TransferOp::kPut, &report_.put.emplace(GrpcReport::Bytes{}));
    if (!status.ok()) return status;
    if (getloadavg(&report_.load, 1) != 1) report_.load = 0;
    if (status = server_->Stop(); !status.ok()) return status;
    return report_;
  }

 private:
  int64_t SliceNs() const { return options_.duration_ns / options_.pairs / 2; }

  TransferOptions SessionOptions(TransferOp op) const {
    TransferOptions session;
    session.op = op;
    session.block_bytes = options_.block_bytes;
    session.batch = options_.batch;
    session.inflight = 1;  // as a stream
    session.clients = options_.clients;
    session.arena_bytes = options_.arena_bytes;
    session.working_set_bytes = options_.working_set_bytes;
    return session;
  }

  void Count(const Slice& slice) {
    report_.errors += slice.errors;
    report_.wrong_bytes += slice.wrong_bytes;
    if (report_.first_error.empty()) report_.first_error = slice.first_error;
  }

  absl::Status RunMatch() {
    const TransferOptions session = SessionOptions(TransferOp::kMatch);
    auto client = Connect(session, server_->transfer());
    if (!client.ok()) return client.status();
    auto ns = OpenBenchNamespace(client->get(), kMatchBlockBytes, kTokensPerBlock);
    if (!ns.ok()) return ns.status();
    if (absl::Status status = FillServer(client->get(), *ns, 0, options_.blocks, 1); !status.ok()) return status;
    const MatchSlices slices = GrpcMatch(options_, server_->grpc(), std::string(ns->name())).Run(options_.duration_ns);
    Count(slices.match);
    Count(slices.empty);
    report_.match = {slices.match.latencies.PercentileUs(0.50), slices.match.latencies.PercentileUs(0.99),
                     slices.empty.latencies.PercentileUs(0.50), slices.empty.latencies.PercentileUs(0.99)};
    return absl::OkStatus();
  }

  // Which side goes first alternates, so that a drift of the machine favours neither.
  absl::Status Alternate(const std::function<absl::Status()>& a, const std::function<absl::Status()>& b) {
    for (uint32_t pair = 0; pair < options_.pairs; ++pair) {
      absl::Status status = pair % 2 == 0 ? a() : b();
      if (status.ok()) status = pair % 2 == 0 ? b() : a();
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status RunBytes(TransferOp op, GrpcReport::Bytes* bytes) {
    const TransferOptions session_options = SessionOptions(op);
    auto session = MakeDataWorkload(session_options, server_->transfer());
    if (!session.ok()) return session.status();
    // The name that OpenBenchNamespace gives to the session's blocks.
    auto client = Connect(session_options, server_->transfer());
    if (!client.ok()) return client.status();
    auto ns = OpenBenchNamespace(client->get(), options_.block_bytes, kTokensPerBlock);
    if (!ns.ok()) return ns.status();
    auto grpc = MakeGrpcBytes(options_, server_->grpc(), op == TransferOp::kPut, std::string(ns->name()),
                              options_.working_set_bytes / options_.block_bytes);
    if (!grpc.ok()) return grpc.status();
    std::vector<double> session_rates, grpc_rates;
    uint64_t grpc_bytes = 0;
    double cpu_s = 0;
    const auto run_session = [&] {
      const Slice slice = (*session)->Run(SliceNs());
      Count(slice);
      session_rates.push_back(slice.gb_per_s());
      return absl::OkStatus();
    };
    const auto run_grpc = [&] {
      const double before = server_->CpuSeconds().value_or(0);
      const Slice slice = (*grpc)->Run(SliceNs());
      cpu_s += server_->CpuSeconds().value_or(0) - before;
      grpc_bytes += slice.bytes;
      Count(slice);
      grpc_rates.push_back(slice.gb_per_s());
      return absl::OkStatus();
    };
    if (absl::Status status = Alternate(run_session, run_grpc); !status.ok()) return status;
    for (size_t i = 0; i < grpc_rates.size(); ++i) bytes->pair_ratios.push_back(grpc_rates[i] / session_rates[i]);
    bytes->ratio = Median(bytes->pair_ratios);
    bytes->grpc_gb_per_s = Median(grpc_rates);
    bytes->session_gb_per_s = Median(session_rates);
    if (server_->CpuSeconds().has_value() && grpc_bytes > 0) {
      bytes->server_cpu_s_per_gb = cpu_s / (static_cast<double>(grpc_bytes) / 1e9);
    }
    return absl::OkStatus();
  }

  // Something is stored all the time, on both sides, so that there are events.
  absl::Status RunObservers() {
    if (options_.scrape && server_->metrics().empty()) {
      return absl::InvalidArgumentError("--server needs --server-metrics, or --no-scrape");
    }
    const TransferOptions session_options = SessionOptions(TransferOp::kGet);  // the workload refers to it
    auto session = MakeDataWorkload(session_options, server_->transfer());
    if (!session.ok()) return session.status();
    auto churn = Churn::Start(server_->transfer(), options_.events_per_s);
    if (!churn.ok()) return churn.status();
    GrpcReport::Observers& report = report_.observers.emplace(GrpcReport::Observers{});
    std::vector<double> without, with;
    const auto run = [&](std::vector<double>* rates) {
      const Slice slice = (*session)->Run(SliceNs());
      Count(slice);
      rates->push_back(slice.gb_per_s());
    };
    const auto run_without = [&] {
      run(&without);
      return absl::OkStatus();
    };
    const auto run_with = [&] {
      Observers observers(options_, server_->grpc(), server_->metrics());
      run(&with);
      Observers::Counts counts;
      absl::Status status = observers.Stop(&counts);
      report.scrapes += counts.scrapes;
      report.stats += counts.stats;
      report.events += counts.events;
      return status;
    };
    if (absl::Status status = Alternate(run_without, run_with); !status.ok()) return status;
    for (size_t i = 0; i < with.size(); ++i) report.pair_losses.push_back(1 - with[i] / without[i]);
    report.loss = Median(report.pair_losses);
    report.gb_per_s = Median(without);
    return (*churn)->Stop();
  }

  const GrpcOptions& options_;
  GrpcReport report_;
  std::unique_ptr<ServerUnderTest> server_;
};

}  // namespace

absl::StatusOr<GrpcReport> RunGrpc(const GrpcOptions& options) { return GrpcRunner(options).Run(); }

}  // namespace quarry::bench
