// peer-load-quarry: one client of the public library a connection.
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "quarry/client.h"
#include "tools/bench/bench_spec.h"
#include "tools/bench/block_content.h"
#include "tools/peers/peer.h"

namespace quarry::peers {
namespace {

constexpr uint32_t kTokensPerBlock = 16;

class QuarryPeer : public Peer {
 public:
  static absl::StatusOr<std::unique_ptr<Peer>> Create(const LoadOptions& options, absl::Span<std::byte> arena) {
    std::unique_ptr<QuarryPeer> peer(new QuarryPeer(options));
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

  void Put(absl::Span<const Batch> batches, Outcome* outcome) override { Transfer(true, batches, outcome); }
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
  explicit QuarryPeer(const LoadOptions& options) : options_(options) {}

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
      while (next < batches.size() && under_way < options_.inflight) begin_one();
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
  CompletionQueue queue_;
  std::unique_ptr<Client> client_;
  Namespace ns_;
  MemoryRegion region_;
  std::vector<int64_t> begun_ns_;  // of every batch
};

}  // namespace
}  // namespace quarry::peers

int main(int argc, char** argv) {
  return quarry::peers::RunLoad(argc, argv, "peer-load-quarry", quarry::peers::QuarryPeer::Create);
}
