// CPU time of one Match of 512 hashes, all there, lease taken (and given back, untimed), in
// indexes of different sizes. `random`: hashes from all over the index; `chain`: whole chains in
// random order, as prompts are. No two matches ask for the same, so that an index larger than
// the processor's caches is not found in them.
#include <benchmark/benchmark.h>

#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "server/block_store.h"
#include "server/namespaces.h"

namespace quarry::server {
namespace {

constexpr uint32_t kHashes = 512;
constexpr uint32_t kHashBytes = 32;
constexpr uint64_t kBlockBytes = 4096;

double ThreadCpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::string HashOf(uint64_t id) {
  std::mt19937_64 random(id);
  std::string hash(kHashBytes, '\0');
  for (char& c : hash) c = static_cast<char>(random());
  return hash;
}

struct Filled {
  explicit Filled(uint64_t blocks) {
    BlockStoreOptions options;
    options.arena_bytes = (blocks + blocks / 8) * kBlockBytes + (256 << 20);
    options.prefault = false;
    store = *BlockStore::Create(options, Clock::Real());
    ModelSpec spec;
    spec.model = "m";
    spec.kv_dtype = "bfloat16";
    spec.hash_scheme = "random";
    spec.hash_bytes = kHashBytes;
    spec.layers = 1;
    spec.groups.push_back({GroupKind::kFull, 16, 0, 1, kBlockBytes, true});
    ns = namespaces.Open("t", "n", spec, false)->ns;
    for (uint64_t id = 0; id < blocks; ++id) {
      hashes.push_back(HashOf(id));
      PutOffer offer;
      offer.hash = hashes.back();
      offer.depth = id % kHashes;
      if (offer.depth != 0) offer.parent = hashes[id - 1];
      offer.bytes = kBlockBytes;
      store->Offer(*ns, offer).ticket.Publish();
    }
  }

  NamespaceRegistry namespaces;
  std::unique_ptr<BlockStore> store;
  const Namespace* ns = nullptr;
  std::vector<std::string> hashes;
};

void RunMatch(benchmark::State& state, bool chains) {
  const uint64_t blocks = static_cast<uint64_t>(state.range(0));
  Filled filled(blocks);
  std::mt19937_64 random(1);
  std::string hashes;
  double total_seconds = 0;
  for (auto _ : state) {
    hashes.clear();
    const uint64_t first = random() % (blocks / kHashes) * kHashes;
    for (uint32_t i = 0; i < kHashes; ++i) hashes += filled.hashes[chains ? first + i : random() % blocks];
    const ChainQuery chain{0, 0, HashSpan(hashes, kHashBytes)};
    MatchQuery query;
    query.chains = absl::MakeConstSpan(&chain, 1);
    query.lease_ms = 1000;
    const double begin = ThreadCpuSeconds();
    MatchResult result = filled.store->Match(*filled.ns, query);
    const double seconds = ThreadCpuSeconds() - begin;
    state.SetIterationTime(seconds);
    total_seconds += seconds;
    if (result.chains[0].usable.end != kHashes) state.SkipWithError("not all blocks matched");
    filled.store->Upkeep();
    if (!filled.store->ReleaseLease("t", result.lease).ok()) state.SkipWithError("no lease");
  }
  state.counters["ns_per_hash"] = total_seconds * 1e9 / static_cast<double>(state.iterations()) / kHashes;
  const StoreStats stats = filled.store->stats();
  state.counters["index_bytes_per_block"] = static_cast<double>(stats.index_bytes) / static_cast<double>(stats.blocks);
}

void MatchRandomHashes(benchmark::State& state) { RunMatch(state, false); }
void MatchChains(benchmark::State& state) { RunMatch(state, true); }
BENCHMARK(MatchRandomHashes)->Arg(10'000)->Arg(100'000)->Arg(1'000'000)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(MatchChains)->Arg(10'000)->Arg(100'000)->Arg(1'000'000)->UseManualTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace quarry::server

BENCHMARK_MAIN();
