#include "tools/bench/replay.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "quarry/client.h"
#include "tools/bench/bench_spec.h"
#include "tools/bench/progress_bar.h"
#include "tools/bench/replay_worker.h"
#include "tools/bench/server_stats.h"
#include "tools/bench/trace.h"

namespace quarry::bench {
namespace {

constexpr std::chrono::milliseconds kProgressInterval(200);

class Replay {
 public:
  explicit Replay(const ReplayOptions& options) : options_(options) {}

  absl::StatusOr<ReplayReport> Run() {
    auto trace = ReadTrace(options_.trace, options_.requests);
    if (!trace.ok()) return trace.status();
    trace_ = *std::move(trace);
    auto server = ServerUnderTest::Start(options_.server);
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    if (absl::Status status = MakeWorkers(); !status.ok()) return status;
    ServeAll();
    for (const auto& worker : workers_) report_.counts.Merge(worker->counts());
    if (absl::Status status = Compare(); !status.ok()) return status;
    workers_.clear();
    clients_.clear();
    if (absl::Status status = server_->Stop(); !status.ok()) return status;
    return report_;
  }

 private:
  absl::Status MakeWorkers() {
    std::vector<Namespace> namespaces;
    for (uint32_t i = 0; i < options_.clients; ++i) {
      ClientOptions client_options;
      client_options.server = server_->transfer();
      client_options.client_name = "quarry-bench";
      client_options.transport = options_.transport;
      client_options.data_streams = options_.streams;
      client_options.verify_checksums = options_.checksum;
      auto client = Client::Create(client_options);
      if (!client.ok()) return client.status();
      auto ns = (*client)->OpenNamespace(absl::StrCat("replay-", options_.block_bytes),
                                         BenchSpec("trace-replay", kTraceBlockTokens, options_.block_bytes));
      if (!ns.ok()) return ns.status();
      clients_.push_back(*std::move(client));
      namespaces.push_back(*std::move(ns));
    }
    for (uint32_t i = 0; i < options_.concurrency; ++i) {
      const size_t client = i % clients_.size();
      auto worker = ReplayWorker::Create(options_, clients_[client].get(), namespaces[client], i);
      if (!worker.ok()) return worker.status();
      workers_.push_back(*std::move(worker));
    }
    return absl::OkStatus();
  }

  void ServeAll() {
    const int64_t begin = Clock::Real()->NowNs();
    std::thread progress;
    if (options_.progress) progress = std::thread([this, begin] { ShowProgress(begin); });
    std::vector<std::thread> threads;
    for (const auto& worker : workers_) threads.emplace_back([this, &worker, begin] { Work(worker.get(), begin); });
    for (std::thread& thread : threads) thread.join();
    report_.seconds = static_cast<double>(Clock::Real()->NowNs() - begin) / 1e9;
    if (!progress.joinable()) return;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      finished_ = true;
    }
    changed_.notify_one();
    progress.join();
  }

  void Work(ReplayWorker* worker, int64_t begin) {
    for (size_t i = next_++; i < trace_.size(); i = next_++) {
      if (options_.speed > 0) WaitForTurn(worker, trace_[i].timestamp_ms - trace_[0].timestamp_ms, begin);
      worker->Serve(trace_[i]);
      ++served_;
    }
  }

  void WaitForTurn(ReplayWorker* worker, uint64_t offset_ms, int64_t begin) {
    const int64_t due = begin + static_cast<int64_t>(static_cast<double>(offset_ms) * 1e6 / options_.speed);
    const int64_t wait = due - Clock::Real()->NowNs();
    if (wait > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(wait));
    worker->counts().late.Add(wait > 0 ? 0 : -wait);
  }

  void ShowProgress(int64_t begin) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!changed_.wait_for(lock, kProgressInterval, [this] { return finished_; })) {
      const double seconds = static_cast<double>(Clock::Real()->NowNs() - begin) / 1e9;
      DrawProgress(ProgressLine("replay", served_, trace_.size(), seconds));
    }
    EraseProgress();
  }

  absl::Status Compare() {
    report_.best = Simulate(trace_, {});
    report_.distinct_blocks = DistinctBlocks(trace_);
    if (server_->grpc().empty()) return absl::OkStatus();
    auto stats = FetchServerStats(server_->grpc());
    if (!stats.ok()) return stats.status();
    report_.capacity_blocks = stats->capacity_slots;
    if (absl::Status status = LookAtSsd(); !status.ok()) return status;
    const bool has_ssd = report_.ssd.has_value() && report_.ssd->capacity_blocks != 0;
    const uint64_t capacity = has_ssd ? report_.ssd->capacity_blocks : report_.capacity_blocks;
    if (capacity == 0) return absl::OkStatus();
    report_.simulated = Simulate(trace_, {.rule = EvictionRule::kChainLru, .capacity_blocks = capacity});
    return absl::OkStatus();
  }

  absl::Status LookAtSsd() {
    if (options_.server.ssd_dir.empty()) return absl::OkStatus();
    auto counters = FetchSsdCounters(server_->metrics());
    if (!counters.ok()) return counters.status();
    ReplaySsd& ssd = report_.ssd.emplace();
    ssd.counters = *std::move(counters);
    ssd.payload_bytes = ssd.counters.spilled_records * options_.block_bytes;
    const uint64_t record_bytes = ssd.counters.record_bytes();
    if (record_bytes != 0) ssd.capacity_blocks = ssd.counters.size_bytes / record_bytes;
    return absl::OkStatus();
  }

  const ReplayOptions& options_;
  ReplayReport report_;
  std::vector<TraceRequest> trace_;
  std::unique_ptr<ServerUnderTest> server_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<std::unique_ptr<ReplayWorker>> workers_;
  std::atomic<size_t> next_{0};
  std::atomic<uint64_t> served_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool finished_ = false;  // guarded by mutex_
};

}  // namespace

absl::StatusOr<ReplayReport> RunReplay(const ReplayOptions& options) { return Replay(options).Run(); }

}  // namespace quarry::bench
