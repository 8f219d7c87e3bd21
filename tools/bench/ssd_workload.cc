// Put, get and fetch of a server with an SSD: what of a working set is not in memory, or what
// the SSD takes of a stream of puts.
#include <algorithm>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "tools/bench/block_content.h"
#include "tools/bench/data_client.h"
#include "tools/bench/run_order.h"
#include "tools/bench/server_stats.h"
#include "tools/bench/spill_pace.h"
#include "tools/bench/workload.h"

namespace quarry::bench {
namespace {

constexpr int64_t kWarmUpSliceNs = 300'000'000;
constexpr int64_t kLongestWarmUpNs = 120'000'000'000;

class SsdWorkload : public Workload {
 public:
  SsdWorkload(const TransferOptions& options, ServerUnderTest* server)
      : options_(options),
        server_(server),
        runs_(std::max<uint64_t>(1, options.working_set_bytes / options.block_bytes / options.batch)),
        order_(runs_, 1) {}

  absl::Status Init() {
    if (absl::Status status = CheckSizes(options_, runs_ * options_.batch); !status.ok()) return status;
    if (absl::Status status = Connect(); !status.ok()) return status;
    if (absl::Status status = StartPace(); !status.ok()) return status;
    if (options_.op == TransferOp::kPut) return WriteAllOnce();
    if (absl::Status status = Fill(); !status.ok()) return status;
    // A start with what was there before leaves all of it on the SSD, and nothing in memory.
    clients_.clear();
    pace_.reset();
    if (absl::Status status = server_->Restart(); !status.ok()) return status;
    return Connect();
  }

  Slice Run(int64_t duration_ns) override {
    Slice slice = options_.op == TransferOp::kPut ? RunPuts(duration_ns) : RunGets(duration_ns);
    return slice;
  }

 private:
  absl::Status Connect() {
    for (uint32_t i = 0; i < options_.clients; ++i) {
      auto client = DataClient::Create(options_, server_->transfer(), i, runs_ * options_.batch);
      if (!client.ok()) return client.status();
      (*client)->UseChains({[this](bool wait) { return pace_->Take(options_.batch, wait); },
                            [this] { return order_.Next() * options_.batch; }});
      clients_.push_back(*std::move(client));
    }
    return absl::OkStatus();
  }

  // How many blocks fit into memory is known once there is one.
  absl::Status StartPace() {
    if (absl::Status status = PutPart(clients_[0].get(), 0, 1); !status.ok()) return status;
    auto stats = FetchServerStats(server_->grpc());
    if (!stats.ok()) return stats.status();
    auto pace = SpillPace::Start(server_->metrics(), stats->capacity_slots);
    if (!pace.ok()) return pace.status();
    pace_ = *std::move(pace);
    if (options_.op == TransferOp::kPut && options_.batch > pace_->most_blocks()) {
      return absl::InvalidArgumentError(absl::StrCat("--batch: ", options_.batch, " is above the most, ",
                                                     pace_->most_blocks(), ", which follows from --memory"));
    }
    pace_->Take(1, true);
    return absl::OkStatus();
  }

  // So that a slice finds every extent in use: then writing is writing over, and reclaiming.
  absl::Status WriteAllOnce() {
    const int64_t begin_ns = Clock::Real()->NowNs();
    auto counters = FetchSsdCounters(server_->metrics());
    while (counters.ok() && counters->spilled_bytes < options_.server.ssd_bytes) {
      const Slice slice = RunClients(clients_, kWarmUpSliceNs);
      if (slice.errors > 0) return absl::InternalError(slice.first_error);
      if (Clock::Real()->NowNs() - begin_ns > kLongestWarmUpNs) return TooSlow();
      counters = FetchSsdCounters(server_->metrics());
    }
    return counters.status();
  }

  absl::Status Fill() {
    std::vector<absl::Status> filled(clients_.size());
    InParallel(clients_.size(), [&](size_t i) { filled[i] = PutRuns(clients_[i].get(), i, clients_.size()); });
    for (const absl::Status& status : filled) {
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  static absl::Status TooSlow() {
    return absl::DeadlineExceededError(
        absl::StrCat("the SSD had not taken all blocks after ", kLongestWarmUpNs / 1'000'000'000, " s"));
  }

  // Runs `first`, `first` + `step`, ..: each a chain, put in parts.
  absl::Status PutRuns(DataClient* client, uint64_t first, uint64_t step) {
    const uint64_t most = std::max<uint64_t>(1, pace_->most_blocks() / clients_.size());
    for (uint64_t run = first; run < runs_; run += step) {
      const uint64_t end = (run + 1) * options_.batch;
      for (uint64_t id = run * options_.batch; id < end; id += most) {
        const uint64_t blocks = std::min(most, end - id);
        if (!pace_->Take(blocks, true)) return pace_->status();
        if (absl::Status status = PutPart(client, id, blocks); !status.ok()) return status;
      }
    }
    return absl::OkStatus();
  }

  // Blocks `id` and so on, of one run.
  absl::Status PutPart(DataClient* client, uint64_t id, uint64_t blocks) {
    auto pool = BufferPool::Create(blocks * options_.block_bytes, options_.block_bytes, 1);
    if (!pool.ok()) return pool.status();
    auto region = client->client()->RegisterMemory((*pool)->base(), (*pool)->bytes());
    if (!region.ok()) return region.status();
    std::vector<std::string> hashes(blocks + 1);
    std::vector<Item> items(blocks);
    if (id % options_.batch != 0) hashes[0] = HashOf(id - 1);
    for (uint64_t i = 0; i < blocks; ++i) {
      hashes[i + 1] = HashOf(id + i);
      items[i].hash = hashes[i + 1];
      items[i].segments = (*pool)->Take(options_.block_bytes);
      items[i].depth = (id + i) % options_.batch;
      items[i].parent = hashes[i];
      FillBlock(id + i, items[i].segments);
    }
    auto result = client->client()->Put(client->ns(), std::move(items));
    return result.ok() ? CheckStored(*result) : result.status();
  }

  Slice RunPuts(int64_t duration_ns) {
    pace_->BeginSpan();
    Slice slice = RunClients(clients_, duration_ns);
    const SpillPace::Span span = pace_->EndSpan();
    slice.ssd_bytes = span.bytes;
    slice.ssd_ns = span.ns;
    slice.unspilled_blocks = span.unspilled_blocks;
    if (span.ns == 0) slice.AddError("the SSD committed less than twice in a slice: --duration is too short");
    return slice;
  }

  Slice RunGets(int64_t duration_ns) {
    const auto before = FetchSsdCounters(server_->metrics());
    Slice slice = RunClients(clients_, duration_ns);
    const auto after = FetchSsdCounters(server_->metrics());
    if (!before.ok() || !after.ok()) {
      slice.AddError("the server's metrics could not be read");
      return slice;
    }
    slice.ssd_bytes = after->loaded_bytes - before->loaded_bytes;
    slice.ssd_ns = slice.elapsed_ns;
    slice.unspilled_blocks = after->unspilled_blocks - before->unspilled_blocks;
    return slice;
  }

  const TransferOptions& options_;
  ServerUnderTest* server_;
  const uint64_t runs_;  // of TransferOptions::batch blocks each
  RunOrder order_;
  std::unique_ptr<SpillPace> pace_;
  std::vector<std::unique_ptr<DataClient>> clients_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Workload>> MakeSsdWorkload(const TransferOptions& options, ServerUnderTest* server) {
  auto workload = std::make_unique<SsdWorkload>(options, server);
  if (absl::Status status = workload->Init(); !status.ok()) return status;
  return std::unique_ptr<Workload>(std::move(workload));
}

}  // namespace quarry::bench
