#include "tools/bench/spill_load_side.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"

namespace quarry::bench {
namespace {

constexpr int64_t kWarmUpSliceNs = 500'000'000;
constexpr int64_t kLongestWarmUpNs = 180'000'000'000;
// Between two looks at what is written; the server commits what waits within a second.
constexpr std::chrono::milliseconds kSettlePeriod(1'200);
constexpr int kMostSettlePeriods = 10;
constexpr char kDrainTimeout[] = "--drain-timeout=25s";
constexpr uint64_t kPutArenaBytes = 256 << 20;

TransferOptions GetOptionsOf(const SpillLoadOptions& options) {
  TransferOptions gets;
  gets.op = TransferOp::kGet;
  gets.transport = options.transport;
  gets.block_bytes = options.block_bytes;
  gets.segment_bytes = options.segment_bytes;
  gets.batch = options.batch;
  gets.inflight = options.inflight;
  gets.clients = options.clients;
  gets.checksum = options.checksum;
  gets.arena_bytes = options.arena_bytes;
  return gets;
}

TransferOptions PutOptionsOf(const SpillLoadOptions& options) {
  TransferOptions puts = GetOptionsOf(options);
  puts.op = TransferOp::kPut;
  puts.batch = options.put_batch;
  puts.clients = 1;
  puts.arena_bytes = std::max(kPutArenaBytes, 2 * options.inflight * options.put_batch * options.block_bytes);
  return puts;
}

}  // namespace

SpillLoadSide::SpillLoadSide(const SpillLoadOptions& options, bool with_ssd)
    : options_(options),
      with_ssd_(with_ssd),
      hot_runs_(std::max<uint64_t>(1, options.hot_bytes / options.block_bytes / options.batch)),
      gets_(GetOptionsOf(options)),
      puts_(PutOptionsOf(options)),
      order_(hot_runs_, 1),
      pace_(Clock::Real()) {}

absl::StatusOr<std::unique_ptr<SpillLoadSide>> SpillLoadSide::Create(const SpillLoadOptions& options, bool with_ssd) {
  std::unique_ptr<SpillLoadSide> side(new SpillLoadSide(options, with_ssd));
  if (absl::Status status = side->Init(); !status.ok()) return status;
  return side;
}

absl::Status SpillLoadSide::Init() {
  const uint64_t blocks = hot_runs_ * options_.batch;
  if (absl::Status status = CheckSizes(gets_, blocks); !status.ok()) return status;
  if (absl::Status status = CheckSizes(puts_, 0); !status.ok()) return status;
  ServerOptions own = options_.server;
  if (!with_ssd_) own.ssd_dir.clear();
  // At the end it writes what is in memory.
  own.quarryd_flags.push_back(kDrainTimeout);
  auto server = ServerUnderTest::Start(own);
  if (!server.ok()) return server.status();
  server_ = *std::move(server);
  for (uint32_t i = 0; i < options_.clients; ++i) {
    auto client = DataClient::Create(gets_, server_->transfer(), i, blocks);
    if (!client.ok()) return client.status();
    // A match goes before every get: it is what keeps a block in memory.
    (*client)->UseChains({nullptr, [this] { return order_.Next() * options_.batch; }});
    getters_.push_back(*std::move(client));
  }
  auto putter = DataClient::Create(puts_, server_->transfer(), options_.clients, 0);
  if (!putter.ok()) return putter.status();
  putter_ = *std::move(putter);
  putter_->UseChains(
      {[this](bool wait) { return pace_.Take(options_.put_batch * options_.block_bytes, wait); }, nullptr});
  return FillServer(getters_[0]->client(), getters_[0]->ns(), 0, blocks, 1);
}

absl::Status SpillLoadSide::WarmUp(double put_bytes_per_s) {
  const uint64_t wanted = options_.server.memory_bytes + (with_ssd_ ? options_.server.ssd_bytes : 0);
  const int64_t begin_ns = Clock::Real()->NowNs();
  uint64_t put_bytes = 0;
  while (put_bytes < wanted) {
    const SpillStep step = RunFor(put_bytes_per_s, kWarmUpSliceNs, &put_bytes);
    if (step.errors > 0) return absl::InternalError(step.first_error);
    if (Clock::Real()->NowNs() - begin_ns > kLongestWarmUpNs) {
      return absl::DeadlineExceededError(absl::StrCat("only ", put_bytes, " of ", wanted, " bytes were put in ",
                                                      kLongestWarmUpNs / 1'000'000'000, " s"));
    }
  }
  return absl::OkStatus();
}

// What the step before has left is not to be paid for by the next.
absl::Status SpillLoadSide::Settle() {
  if (!with_ssd_) return absl::OkStatus();
  const auto written = [](const SsdCounters& c) { return c.spilled_bytes + c.moved_bytes; };
  auto last = Counters();
  for (int i = 0; last.ok() && i < kMostSettlePeriods; ++i) {
    std::this_thread::sleep_for(kSettlePeriod);
    const auto now = Counters();
    if (!now.ok()) return now.status();
    if (written(*now) == written(*last)) return absl::OkStatus();
    last = now;
  }
  return last.ok() ? absl::DeadlineExceededError("the server goes on writing to the SSD without puts") : last.status();
}

SpillStep SpillLoadSide::Run(double put_bytes_per_s) {
  if (absl::Status status = Settle(); !status.ok()) {
    SpillStep failed;
    failed.errors = 1;
    failed.first_error = std::string(status.message());
    return failed;
  }
  uint64_t put_bytes = 0;
  return RunFor(put_bytes_per_s, options_.step_ns, &put_bytes);
}

SpillStep SpillLoadSide::RunFor(double put_bytes_per_s, int64_t duration_ns, uint64_t* put_bytes) {
  Slice gets, puts;
  const auto before = Counters();
  const int64_t start_ns = Clock::Real()->NowNs();
  std::thread putting;
  if (put_bytes_per_s > 0) {
    pace_.Begin(put_bytes_per_s);
    putting = std::thread([&] { puts = putter_->Run(start_ns, start_ns + duration_ns); });
  }
  gets = RunClients(getters_, duration_ns);
  if (putting.joinable()) putting.join();
  const auto after = Counters();
  const int64_t elapsed_ns = Clock::Real()->NowNs() - start_ns;
  putter_->Check(&puts);
  *put_bytes += puts.bytes;

  SpillStep step;
  step.get_gb_per_s = gets.gb_per_s();
  step.put_gb_per_s = puts.gb_per_s();
  gets.Merge(puts);
  step.errors = gets.errors;
  step.wrong_bytes = gets.wrong_bytes;
  step.first_error = gets.first_error;
  if (!before.ok() || !after.ok()) {
    if (step.errors++ == 0) step.first_error = "the server's metrics could not be read";
    return step;
  }
  step.spilled_gb_per_s =
      static_cast<double>(after->spilled_bytes - before->spilled_bytes) / static_cast<double>(elapsed_ns);
  step.loaded_bytes = after->loaded_bytes - before->loaded_bytes;
  step.unspilled_blocks = after->unspilled_blocks - before->unspilled_blocks;
  return step;
}

absl::Status SpillLoadSide::Stop() {
  getters_.clear();
  putter_.reset();
  return server_->Stop();
}

}  // namespace quarry::bench
