#include "tests/integration/peer.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

namespace quarry::testing {
namespace {

constexpr size_t kPieceBytes = 30'000;  // cuts chunks of 64 KiB anywhere

template <typename T>
T ValueOrGive(absl::StatusOr<T> result, const char* what) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "%s: %s\n", what, result.status().ToString().c_str());
  std::abort();
}

}  // namespace

ModelSpec PlainSpec(uint64_t shard_bytes) {
  ModelSpec spec;
  spec.engine = "test";
  spec.model = "plain";
  spec.kv_dtype = "bfloat16";
  spec.hash_scheme = "test";
  spec.hash_bytes = kHashBytes;
  spec.layers = 4;
  spec.groups = {{.tokens_per_block = 16, .shard_bytes = shard_bytes}};
  return spec;
}

Peer::Peer(const std::string& address, const ModelSpec& spec, ClientOptions options) {
  options.server = address;
  options.connect_timeout_ms = kPatienceMs;
  options.default_deadline_ms = kPatienceMs;
  client_ = ValueOrGive(Client::Create(options), "Client::Create");
  ns_ = ValueOrGive(client_->OpenNamespace("end to end", spec), "OpenNamespace");
}

::testing::AssertionResult Peer::IsIdle() const {
  const ClientCounters counters = client_->counters();
  if (counters.operations == 0 && counters.held == 0 && counters.exposed_requests == 0) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << counters.operations << " operations, " << counters.held << " held, "
                                       << counters.exposed_requests << " exposed";
}

Batch::Batch(const Peer& peer, uint64_t first_id, size_t count, uint32_t group, uint32_t shard, size_t shard_bytes)
    : peer_(&peer),
      group_(group),
      shard_(shard),
      buffers_(count, shard_bytes != 0 ? shard_bytes : peer.spec().groups[group].shard_bytes, kPieceBytes) {
  MoveTo(first_id);
  const MemoryRange range = buffers_.range();
  region_ = ValueOrGive(peer->RegisterMemory(range.base, range.bytes), "RegisterMemory");
}

void Batch::MoveTo(uint64_t first_id) {
  first_id_ = first_id;
  hashes_.clear();
  for (size_t i = 0; i < size(); ++i) hashes_ += HashOf(first_id + i);
}

Bytes Batch::ContentAt(size_t i) const { return ContentOf(first_id_ + i, group_, shard_, buffers_.item_bytes()); }

void Batch::Fill() {
  for (size_t i = 0; i < size(); ++i) buffers_.Fill(i, ContentAt(i));
}

::testing::AssertionResult Batch::HoldsAll() const {
  for (size_t i = 0; i < size(); ++i) {
    if (!Holds(i)) return ::testing::AssertionFailure() << "block " << i << " has other bytes";
  }
  if (!buffers_.GapsIntact()) return ::testing::AssertionFailure() << "bytes beside the buffers were written";
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult Batch::Untouched() const {
  for (size_t i = 0; i < size(); ++i) {
    if (!buffers_.Untouched(i)) return ::testing::AssertionFailure() << "the buffer of block " << i << " was written";
  }
  if (!buffers_.GapsIntact()) return ::testing::AssertionFailure() << "bytes beside the buffers were written";
  return ::testing::AssertionSuccess();
}

Item Batch::ItemAt(size_t i) const {
  Item item;
  item.group = group_;
  item.shard = shard_;
  item.hash = AsChain().hashes[i];
  item.segments = buffers_.segments(i);
  return item;
}

std::vector<Item> Batch::Items() const {
  std::vector<Item> items;
  for (size_t i = 0; i < size(); ++i) items.push_back(ItemAt(i));
  return items;
}

Chain Batch::AsChain() const { return {.group = group_, .hashes = HashSpan(hashes_, kHashBytes)}; }

std::vector<SegmentList> Batch::Destinations() const {
  std::vector<SegmentList> destinations;
  for (size_t i = 0; i < size(); ++i) destinations.push_back(buffers_.segments(i));
  return destinations;
}

absl::Status Batch::Put(const PutOptions& options) {
  Fill();
  std::vector<Item> items = Items();
  for (size_t i = 0; i < items.size(); ++i) {
    items[i].depth = i;
    if (i > 0) items[i].parent = items[i - 1].hash;
  }
  auto put = (*peer_)->Put(peer_->ns(), std::move(items), options);
  if (!put.ok()) return put.status();
  for (const ItemResult& item : put->items) {
    if (!item.status.ok()) return item.status;
    if (item.outcome == PutOutcome::kRefused) return absl::AbortedError(Name(item.refusal));
  }
  return absl::OkStatus();
}

::testing::AssertionResult Batch::EventuallyPuts() {
  absl::Status status;
  for (int attempt = 0; attempt < 1200; ++attempt) {
    status = Put();
    if (status.ok()) return ::testing::AssertionSuccess();
    // Aborted: an earlier put of the same is still under way.
    if (!absl::IsUnavailable(status) && !absl::IsAborted(status)) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return ::testing::AssertionFailure() << status;
}

absl::StatusOr<TransferResult> Batch::Get(const GetOptions& options) {
  buffers_.Clear();
  return (*peer_)->Get(peer_->ns(), Items(), options);
}

::testing::AssertionResult Batch::ComesBack(const GetOptions& options) {
  const auto got = Get(options);
  if (!got.ok()) return ::testing::AssertionFailure() << got.status();
  for (size_t i = 0; i < size(); ++i) {
    const ItemResult& item = got->items[i];
    if (!item.status.ok()) return ::testing::AssertionFailure() << "block " << i << ": " << item.status;
    if (item.miss != MissCause::kNone) {
      return ::testing::AssertionFailure() << "block " << i << " is missed: " << Name(item.miss);
    }
  }
  return HoldsAll();
}

::testing::AssertionResult Batch::PiecesComeBack(size_t first, size_t end) {
  buffers_.Clear();
  std::vector<Item> items = Items();
  std::vector<Bytes> expected;
  for (size_t i = 0; i < size(); ++i) {
    items[i].segments = buffers_.segments(i, first, end);
    items[i].offset = first * buffers_.piece_bytes();
    items[i].bytes = TotalBytes(items[i].segments);
    // What the buffer holds where nothing is written stays.
    Bytes image = buffers_.Read(i);
    const Bytes content = ContentAt(i);
    std::copy_n(content.begin() + static_cast<std::ptrdiff_t>(items[i].offset), items[i].bytes,
                image.begin() + static_cast<std::ptrdiff_t>(items[i].offset));
    expected.push_back(std::move(image));
  }
  const auto got = (*peer_)->Get(peer_->ns(), std::move(items));
  if (!got.ok()) return ::testing::AssertionFailure() << got.status();
  for (size_t i = 0; i < size(); ++i) {
    if (!got->items[i].status.ok() || got->items[i].miss != MissCause::kNone || !buffers_.Holds(i, expected[i])) {
      return ::testing::AssertionFailure() << "pieces " << first << " to " << end << " of block " << i << ": "
                                           << got->items[i].status << " " << Name(got->items[i].miss);
    }
  }
  if (!buffers_.GapsIntact()) return ::testing::AssertionFailure() << "a gap was written to";
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult Batch::IsMissed(MissCause cause, const GetOptions& options) {
  const auto got = Get(options);
  if (!got.ok()) return ::testing::AssertionFailure() << got.status();
  for (size_t i = 0; i < size(); ++i) {
    const ItemResult& item = got->items[i];
    if (!item.status.ok()) return ::testing::AssertionFailure() << "block " << i << ": " << item.status;
    if (item.miss != cause) {
      return ::testing::AssertionFailure() << "block " << i << ": " << Name(item.miss) << ", not " << Name(cause);
    }
  }
  return Untouched();
}

absl::StatusOr<MatchResult> Batch::Match(const MatchOptions& options) {
  const Chain chain = AsChain();
  return (*peer_)->Match(peer_->ns(), {&chain, 1}, options);
}

Ended WaitForEnd(CompletionQueue* queue) {
  Ended ended;
  bool done = false;
  while (true) {
    auto completion = queue->Next(kPatienceMs);
    if (!completion.has_value()) {
      ADD_FAILURE() << "an operation does not end";
      return ended;
    }
    switch (completion->kind) {
      case Completion::Kind::kItem:
        EXPECT_FALSE(done) << "an item ended after its operation";
        ended.items.push_back(*std::move(completion));
        break;
      case Completion::Kind::kDone:
        EXPECT_FALSE(done) << "an operation was done twice";
        done = true;
        ended.done = *std::move(completion);
        if (!ended.done.held) return ended;
        break;
      case Completion::Kind::kReleased:
        EXPECT_TRUE(done) << "released before done";
        return ended;
    }
  }
}

}  // namespace quarry::testing
