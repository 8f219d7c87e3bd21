// peer-load-quarry: one client of the public library a connection.
#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "quarry/client.h"
#include "tools/bench/bench_spec.h"
#include "tools/bench/block_content.h"
#include "tools/peers/peer.h"
#include "tools/peers/shared_pace.h"

namespace quarry::peers {
namespace {

constexpr uint32_t kTokensPerBlock = 16;

class QuarryPeer : public Peer {
 public:
  static absl::StatusOr<std::unique_ptr<Peer>> Create(const LoadOptions& options, std::shared_ptr<SharedPace> pace,
                                                      absl::Span<std::byte> arena) {
    std::unique_ptr<QuarryPeer> peer(new QuarryPeer(options, std::move(pace)));
    ClientOptions client;
    client.server = options.server;
    client.client_name = "peer-load-quarry";
    client.transport = "tcp";
    auto created = Client::Create(client);
    if (!created.ok()) return created.status();
    peer->client_ = *std::move(created);
    auto ns = peer->client_->OpenNamespace(absl::StrCat("compare-", options.block_bytes),
                                           bench::BenchSpec("synthetic", kTokensPerBlock, options.block_bytes));
    if (!ns.ok()) return ns.status();
    peer->ns_ = *std::move(ns);
    auto region = peer->client_->RegisterMemory(arena.data(), arena.size());
    if (!region.ok()) return region.status();
    peer->region_ = *std::move(region);
    return peer;
  }

  void Put(absl::Span<const Batch> batches, Outcome* outcome) override {
    if (pace_ == nullptr) return Transfer(true, batches, outcome);
    // How much fits into memory is known once there is a block.
    const Batch probe{{kProbeId}, {batches[0].buffers[0]}};
    Outcome ignored;
    const absl::Status status = pace_->Start([&] { Transfer(true, {&probe, 1}, &ignored); });
    if (!status.ok()) return outcome->AddError(status.message());
    Transfer(true, InParts(batches, pace_->most_blocks()), outcome);
  }
  void Get(absl::Span<const Batch> batches, Outcome* outcome) override { Transfer(false, batches, outcome); }

  absl::StatusOr<uint64_t> CountPresent(absl::string_view keys, uint32_t /*count*/) override {
    const Chain chain = {.hashes = HashSpan(keys, bench::kHashBytes)};
    const auto match = client_->Match(ns_, {&chain, 1}, {.lease_ms = 0});
    if (!match.ok()) return match.status();
    uint64_t present = 0;
    for (const BlockState state : match->chains[0].states) present += state == BlockState::kDram;
    return present;
  }

  // It evicts what is oldest by itself, within the timed part.
  absl::Status Forget(absl::Span<const uint64_t>) override { return absl::OkStatus(); }

 private:
  // Never one of a round: those are below 2^48.
  static constexpr uint64_t kProbeId = uint64_t{1} << 62;

  QuarryPeer(const LoadOptions& options, std::shared_ptr<SharedPace> pace)
      : options_(options), pace_(std::move(pace)) {}

  static std::vector<Batch> InParts(absl::Span<const Batch> batches, uint64_t most) {
    std::vector<Batch> parts;
    for (const Batch& batch : batches) {
      for (size_t first = 0; first < batch.ids.size(); first += most) {
        const size_t end = std::min<size_t>(batch.ids.size(), first + most);
        const auto part = [first, end](const auto& all) {
          return std::decay_t<decltype(all)>(all.begin() + static_cast<std::ptrdiff_t>(first),
                                             all.begin() + static_cast<std::ptrdiff_t>(end));
        };
        parts.push_back({part(batch.ids), part(batch.buffers)});
      }
    }
    return parts;
  }

  // Of a server with an SSD, a put waits for it: else blocks would be lost.
  bool MayBegin(bool put, const Batch& batch, bool wait, Outcome* outcome) {
    if (!put || pace_ == nullptr || !pace_->started()) return true;
    const bool may = pace_->Take(batch.ids.size(), wait);
    if (!may && wait) outcome->AddError("the server's metrics could not be read");
    return may;
  }

  void Transfer(bool put, absl::Span<const Batch> batches, Outcome* outcome) {
    begun_ns_.assign(batches.size(), 0);
    size_t next = 0;
    size_t under_way = 0;
    const auto begin_one = [&] {
      const absl::Status status = Begin(put, batches[next], next);
      status.ok() ? ++under_way : (outcome->AddError(status.message()), 0);
      ++next;
    };
    while (next < batches.size() || under_way > 0) {
      while (next < batches.size() && under_way < options_.inflight &&
             MayBegin(put, batches[next], under_way == 0, outcome)) {
        begin_one();
      }
      if (under_way == 0 && outcome->errors > 0 && next < batches.size()) return;
      if (under_way == 0) continue;
      const std::optional<Completion> completion = queue_.Next();
      if (!completion.has_value()) continue;
      if (completion->kind == Completion::Kind::kDone) Account(put, *completion, batches, outcome);
      const bool released = completion->kind == Completion::Kind::kReleased ||
                            (completion->kind == Completion::Kind::kDone && !completion->held);
      under_way -= released;
    }
  }

  absl::Status Begin(bool put, const Batch& batch, uint64_t number) {
    std::string hashes;
    for (const uint64_t id : batch.ids) bench::AppendHash(id, 0, &hashes);
    std::vector<Item> items(batch.ids.size());
    for (size_t i = 0; i < items.size(); ++i) {
      items[i].hash = absl::string_view(hashes).substr(i * bench::kHashBytes, bench::kHashBytes);
      items[i].segments = {{.base = batch.buffers[i], .length = options_.block_bytes}};
    }
    begun_ns_[number] = Clock::Real()->NowNs();
    return put ? client_->PutAsync(ns_, std::move(items), {}, &queue_, number).status()
               : client_->GetAsync(ns_, std::move(items), {}, &queue_, number).status();
  }

  void Account(bool put, const Completion& completion, absl::Span<const Batch> batches, Outcome* outcome) {
    outcome->latencies.Add(Clock::Real()->NowNs() - begun_ns_[completion.user_data]);
    if (!completion.status.ok()) return outcome->AddError(completion.status.message());
    const size_t expected = batches[completion.user_data].ids.size();
    if (completion.transfer == nullptr || completion.transfer->items.size() != expected) {
      return outcome->AddError("a call ended without its result");
    }
    for (const ItemResult& item : completion.transfer->items) {
      if (!item.status.ok()) {
        outcome->AddError(item.status.message());
      } else if (put ? item.outcome != PutOutcome::kStored : item.miss != MissCause::kNone) {
        outcome->AddError(put ? absl::StrCat("a block was not stored: ", Name(item.refusal))
                              : absl::StrCat("a block is missing: ", Name(item.miss)));
      } else {
        ++outcome->blocks;
      }
    }
  }

  const LoadOptions& options_;
  const std::shared_ptr<SharedPace> pace_;  // of a server with an SSD
  CompletionQueue queue_;
  std::unique_ptr<Client> client_;
  Namespace ns_;
  MemoryRegion region_;
  std::vector<int64_t> begun_ns_;  // of every batch
};

}  // namespace
}  // namespace quarry::peers

int main(int argc, char** argv) {
  using quarry::peers::SharedPace;
  std::weak_ptr<SharedPace> last;
  return quarry::peers::RunLoad(argc, argv, "peer-load-quarry",
                                [&last](const quarry::peers::LoadOptions& options, absl::Span<std::byte> arena) {
                                  // One for all connections, and a new one when these are.
                                  std::shared_ptr<SharedPace> pace = last.lock();
                                  if (pace == nullptr && !options.metrics.empty()) {
                                    pace = std::make_shared<SharedPace>(options.metrics, options.grpc);
                                    last = pace;
                                  }
                                  return quarry::peers::QuarryPeer::Create(options, std::move(pace), arena);
                                });
}
