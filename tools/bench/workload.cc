#include "tools/bench/workload.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tools/bench/bench_spec.h"
#include "tools/bench/block_content.h"
#include "tools/bench/buffer_pool.h"

namespace quarry::bench {
namespace {

constexpr uint64_t kFillBufferBytes = 64 << 20;
constexpr uint64_t kFillBatch = 1024;  // blocks of one put at most

}  // namespace

void Slice::Merge(const Slice& other) {
  bytes += other.bytes;
  ops += other.ops;
  elapsed_ns = std::max(elapsed_ns, other.elapsed_ns);
  errors += other.errors;
  wrong_bytes += other.wrong_bytes;
  if (first_error.empty()) first_error = other.first_error;
  latencies.Merge(other.latencies);
  ssd_bytes += other.ssd_bytes;
  ssd_ns = std::max(ssd_ns, other.ssd_ns);
  unspilled_blocks += other.unspilled_blocks;
}

void Slice::AddError(const std::string& what) {
  if (errors++ == 0) first_error = what;
}

absl::StatusOr<std::unique_ptr<Client>> Connect(const TransferOptions& options, const std::string& server) {
  ClientOptions client;
  client.server = server;
  client.client_name = "quarry-bench";
  client.transport = options.transport;
  client.ucx_library = options.ucx_library;
  client.data_streams = options.streams;
  client.verify_checksums = options.checksum;
  return Client::Create(client);
}

absl::StatusOr<Namespace> OpenBenchNamespace(Client* client, uint64_t block_bytes, uint32_t tokens_per_block) {
  return client->OpenNamespace(absl::StrCat("bench-", block_bytes, "-", tokens_per_block),
                               BenchSpec("synthetic", tokens_per_block, block_bytes));
}

absl::Status CheckStored(const TransferResult& result) {
  for (const ItemResult& item : result.items) {
    if (!item.status.ok()) return item.status;
    if (item.outcome == PutOutcome::kRefused) {
      return absl::ResourceExhaustedError(absl::StrCat("the server refused a block: ", Name(item.refusal)));
    }
  }
  return absl::OkStatus();
}

absl::Status FillServer(Client* client, const Namespace& ns, uint64_t first, uint64_t end, uint64_t step) {
  const uint64_t block_bytes = ns.spec().groups[0].shard_bytes;
  auto pool = BufferPool::Create(std::max(block_bytes, kFillBufferBytes), block_bytes, first);
  if (!pool.ok()) return pool.status();
  auto region = client->RegisterMemory((*pool)->base(), (*pool)->bytes());
  if (!region.ok()) return region.status();
  const uint64_t batch = std::min<uint64_t>(kFillBatch, (*pool)->free_pieces());
  for (uint64_t id = first; id < end;) {
    std::vector<Item> items;
    std::vector<std::string> hashes;
    hashes.reserve(batch);
    for (; id < end && items.size() < batch; id += step) {
      hashes.push_back(HashOf(id));
      Item item;
      item.hash = hashes.back();
      item.segments = (*pool)->Take(block_bytes);
      FillBlock(id, item.segments);
      items.push_back(std::move(item));
    }
    std::vector<SegmentList> taken;
    for (const Item& item : items) taken.push_back(item.segments);
    auto result = client->Put(ns, std::move(items));
    if (!result.ok()) return result.status();
    if (absl::Status status = CheckStored(*result); !status.ok()) return status;
    for (const SegmentList& segments : taken) (*pool)->Return(segments);
  }
  return absl::OkStatus();
}

}  // namespace quarry::bench
