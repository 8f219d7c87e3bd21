#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "tools/bench/block_content.h"
#include "tools/bench/workload.h"

namespace quarry::bench {
namespace {

constexpr uint32_t kMatchLeaseMs = 5'000;
constexpr size_t kChainsChosenTogether = 256;

class MatchClient {
 public:
  MatchClient(const TransferOptions& options, std::unique_ptr<Client> client, const Namespace& ns, uint32_t number)
      : options_(options), client_(std::move(client)), ns_(ns), random_(number + 1) {}

  Client* client() { return client_.get(); }
  const Namespace& ns() const { return ns_; }

  // Latencies are those of the matches alone; what prepares one and what releases its
  // lease lies between them. elapsed_ns is the sum of the latencies.
  Slice Run(int64_t end_ns) {
    Slice slice;
    while (Clock::Real()->NowNs() < end_ns && slice.errors < kMaxErrors) One(&slice);
    return slice;
  }

 private:
  void One(Slice* slice) {
    const std::string& hashes = NextChain();
    const Chain chain = {.hashes = HashSpan(hashes, kHashBytes)};
    MatchOptions match;
    match.lease_ms = kMatchLeaseMs;
    const int64_t begin = Clock::Real()->NowNs();
    const auto result = client_->Match(ns_, {&chain, 1}, match);
    const int64_t elapsed = Clock::Real()->NowNs() - begin;
    if (!result.ok()) {
      slice->AddError(std::string(result.status().message()));
      return;
    }
    if (result->usable_tokens != uint64_t{options_.hashes} * kTokensPerBlock || !result->lease) {
      slice->AddError(absl::StrCat("only ", result->usable_tokens, " tokens usable: ", Name(result->first_miss)));
      return;
    }
    ++slice->ops;
    slice->bytes += hashes.size();
    slice->elapsed_ns += elapsed;
    slice->latencies.Add(elapsed);
    const absl::Status released = client_->ReleaseLease(result->lease);
    if (!released.ok()) slice->AddError(std::string(released.message()));
  }

  // Chains are chosen many at a time: the next match follows the last at once, as one echo
  // follows another. A pause before each would measure how long a sleeping core takes to wake.
  const std::string& NextChain() {
    if (next_chain_ == chains_.size()) {
      chains_.resize(kChainsChosenTogether);
      for (std::string& chain : chains_) ChooseChain(&chain);
      next_chain_ = 0;
    }
    return chains_[next_chain_++];
  }

  // Random blocks; a chain names a block once.
  void ChooseChain(std::string* hashes) {
    hashes->clear();
    chosen_.clear();
    while (chosen_.size() < options_.hashes) {
      random_ = Mix(random_);
      const uint64_t id = random_ % options_.blocks;
      if (chosen_.insert(id).second) AppendHash(id, 0, hashes);
    }
  }

  const TransferOptions& options_;
  std::unique_ptr<Client> client_;
  Namespace ns_;
  uint64_t random_;
  std::vector<std::string> chains_;
  size_t next_chain_ = 0;
  std::unordered_set<uint64_t> chosen_;
};

class MatchWorkload : public Workload {
 public:
  explicit MatchWorkload(std::vector<std::unique_ptr<MatchClient>> clients) : clients_(std::move(clients)) {}

  Slice Run(int64_t duration_ns) override {
    std::vector<Slice> slices(clients_.size());
    const int64_t end = Clock::Real()->NowNs() + duration_ns;
    InParallel(clients_.size(), [&](size_t i) { slices[i] = clients_[i]->Run(end); });
    Slice all;
    for (const Slice& slice : slices) all.Merge(slice);
    return all;
  }

 private:
  std::vector<std::unique_ptr<MatchClient>> clients_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Workload>> MakeMatchWorkload(const TransferOptions& options, const std::string& server) {
  if (options.match_block_bytes % 8 != 0) {
    return absl::InvalidArgumentError("--match-block must be a multiple of 8 bytes");
  }
  if (options.blocks < uint64_t{options.hashes} * 2) {
    return absl::InvalidArgumentError("--blocks must be at least twice --hashes");
  }
  std::vector<std::unique_ptr<MatchClient>> clients;
  for (uint32_t i = 0; i < options.clients; ++i) {
    auto client = Connect(options, server);
    if (!client.ok()) return client.status();
    auto ns = OpenBenchNamespace(client->get(), options.match_block_bytes, kTokensPerBlock);
    if (!ns.ok()) return ns.status();
    clients.push_back(std::make_unique<MatchClient>(options, *std::move(client), *ns, i));
  }
  const absl::Status filled = FillServer(clients[0]->client(), clients[0]->ns(), 0, options.blocks, 1);
  if (!filled.ok()) return filled;
  return std::unique_ptr<Workload>(new MatchWorkload(std::move(clients)));
}

}  // namespace quarry::bench
