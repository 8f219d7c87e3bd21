// Stores two blocks on a node and reads them back. Usage: first_steps HOST:PORT
#include <quarry/client.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>

template <typename T>
T Must(absl::StatusOr<T> result) {
  if (result.ok()) return std::move(*result);
  std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
  std::exit(1);
}

int main(int argc, char** argv) {
  quarry::ClientOptions options;
  if (argc > 1) options.server = argv[1];
  const auto client = Must(quarry::Client::Create(options));

  constexpr size_t kBytes = 2 << 20;  // of a block: 16 tokens of a small model
  quarry::ModelSpec spec{
      .model = "toy", .kv_dtype = "bfloat16", .hash_scheme = "example", .hash_bytes = 16, .layers = 32};
  spec.groups = {{.tokens_per_block = 16, .shard_bytes = kBytes}};
  const quarry::Namespace ns = Must(client->OpenNamespace("first-steps", spec));

  std::vector<std::byte> memory(4 * kBytes);  // two blocks to put, and room to get them
  std::iota(reinterpret_cast<uint8_t*>(memory.data()), reinterpret_cast<uint8_t*>(memory.data()) + 2 * kBytes, 1);
  const quarry::MemoryRegion region = Must(client->RegisterMemory(memory.data(), memory.size()));
  const std::string hashes = "hash-of-block-00hash-of-block-01";
  const quarry::Chain chain{.hashes = quarry::HashSpan(hashes, 16)};
  const auto items_at = [&](std::byte* base) {
    return std::vector<quarry::Item>{{.hash = chain.hashes[0], .segments = {{base, kBytes}}, .depth = 0},
                                     {.hash = chain.hashes[1], .segments = {{base + kBytes, kBytes}}, .depth = 1}};
  };
  Must(client->Put(ns, items_at(memory.data())));
  const quarry::MatchResult match = Must(client->Match(ns, {&chain, 1}));
  std::printf("%zu tokens of the prompt are cached\n", static_cast<size_t>(match.usable_tokens));
  const auto got = Must(client->Get(ns, items_at(memory.data() + 2 * kBytes), {.lease = match.lease}));
  const bool equal = std::equal(memory.begin(), memory.begin() + 2 * kBytes, memory.begin() + 2 * kBytes);
  std::printf("%zu bytes came back and are %s\n", static_cast<size_t>(got.bytes), equal ? "the same" : "wrong");
  return equal && got.bytes == 2 * kBytes ? 0 : 1;
}
