#include "tools/peers/rounds.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "tools/bench/block_content.h"

namespace quarry::peers {
namespace {

using bench::Mix;

SegmentList Piece(const LoadOptions& options, std::byte* buffer) {
  return {{.base = buffer, .length = options.block_bytes}};
}

}  // namespace

void Outcome::Merge(const Outcome& other) {
  blocks += other.blocks;
  queries += other.queries;
  errors += other.errors;
  if (first_error.empty()) first_error = other.first_error;
  latencies.Merge(other.latencies);
}

Rounds::Rounds(const LoadOptions& options, PeerFactory factory, std::unique_ptr<bench::BufferPool> arena)
    : options_(options), factory_(std::move(factory)), arena_(std::move(arena)) {
  // Other ids in every process, so that no server has a block from before.
  next_id_ = Mix(static_cast<uint64_t>(Clock::Real()->NowNs())) >> 16;
}

absl::StatusOr<std::unique_ptr<Rounds>> Rounds::Create(const LoadOptions& options, const PeerFactory& factory) {
  auto arena = bench::BufferPool::Create(options.blocks * options.block_bytes, options.block_bytes, 1);
  if (!arena.ok()) return arena.status();
  std::unique_ptr<Rounds> rounds(new Rounds(options, factory, *std::move(arena)));
  if (absl::Status status = rounds->Connect(); !status.ok()) return status;
  return rounds;
}

absl::Status Rounds::Reconnect(const std::string& server, const std::string& metrics, const std::string& grpc) {
  options_.server = server;
  options_.metrics = metrics;
  options_.grpc = grpc;
  return Connect();
}

absl::Status Rounds::Connect() {
  peers_.clear();
  for (uint32_t i = 0; i < options_.connections; ++i) {
    auto peer = factory_(options_, {arena_->base(), arena_->bytes()});
    if (!peer.ok()) return peer.status();
    peers_.push_back(*std::move(peer));
  }
  return absl::OkStatus();
}

absl::Status Rounds::Prepare(Op op) {
  op_ = op;
  if (op == Op::kPut) {
    if (absl::Status status = peers_[0]->Forget(ids_); !status.ok()) return status;
    ids_.clear();
    for (uint64_t i = 0; i < options_.blocks; ++i) ids_.push_back(next_id_++);
    Place(/*shuffled=*/false);
    OnEach([this](size_t i, Outcome*) {
      for (const Batch& batch : batches_[i]) {
        for (size_t k = 0; k < batch.ids.size(); ++k) {
          bench::FillBlock(batch.ids[k], Piece(options_, batch.buffers[k]));
        }
      }
    });
    return absl::OkStatus();
  }
  if (ids_.empty()) return absl::FailedPreconditionError("nothing has been put");
  if (op == Op::kGet) {
    Place(/*shuffled=*/true);
    return absl::OkStatus();
  }
  if (options_.hashes > ids_.size()) return absl::InvalidArgumentError("--hashes must be at most --blocks");
  queries_.assign(peers_.size(), {});
  for (std::vector<std::string>& queries : queries_) {
    for (uint32_t q = 0; q < options_.queries; ++q) {
      // Distinct blocks: a stretch of the ids from a random place, which is as good as
      // random to a server that knows them by their hashes.
      random_ = Mix(random_);
      std::string keys;
      for (uint32_t k = 0; k < options_.hashes; ++k) {
        bench::AppendHash(ids_[(random_ + k) % ids_.size()], 0, &keys);
      }
      queries.push_back(std::move(keys));
    }
  }
  return absl::OkStatus();
}

// Deals the blocks to places, batches and connections.
void Rounds::Place(bool shuffled) {
  std::vector<uint64_t> order = ids_;
  for (size_t i = order.size(); shuffled && i > 1; --i) {
    random_ = Mix(random_);
    std::swap(order[i - 1], order[random_ % i]);
  }
  for (const std::vector<Batch>& list : batches_) {
    for (const Batch& batch : list) {
      for (std::byte* buffer : batch.buffers) arena_->Return(Piece(options_, buffer));
    }
  }
  batches_.assign(peers_.size(), {});
  size_t connection = 0;
  for (size_t first = 0; first < order.size(); first += options_.batch) {
    Batch batch;
    for (size_t i = first; i < std::min<size_t>(order.size(), first + options_.batch); ++i) {
      batch.ids.push_back(order[i]);
      batch.buffers.push_back(arena_->Take(options_.block_bytes)[0].base);
    }
    batches_[connection++ % peers_.size()].push_back(std::move(batch));
  }
  if (!shuffled) return;
  // A get: what lies there must not pass for what is to come.
  for (const std::vector<Batch>& list : batches_) {
    for (const Batch& batch : list) {
      for (std::byte* buffer : batch.buffers) bench::PoisonBlock(Piece(options_, buffer));
    }
  }
}

template <typename Use>
Outcome Rounds::OnEach(Use use) {
  std::vector<Outcome> outcomes(peers_.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < peers_.size(); ++i) threads.emplace_back([&, i] { use(i, &outcomes[i]); });
  for (std::thread& thread : threads) thread.join();
  Outcome all;
  for (const Outcome& outcome : outcomes) all.Merge(outcome);
  return all;
}

Round Rounds::Run() {
  const int64_t begin_ns = Clock::Real()->NowNs();
  Round round;
  round.outcome = OnEach([this](size_t i, Outcome* outcome) {
    if (op_ == Op::kPut) return peers_[i]->Put(batches_[i], outcome);
    if (op_ == Op::kGet) return peers_[i]->Get(batches_[i], outcome);
    for (const std::string& keys : queries_[i]) {
      const int64_t query_ns = Clock::Real()->NowNs();
      const auto present = peers_[i]->CountPresent(keys, options_.hashes);
      outcome->latencies.Add(Clock::Real()->NowNs() - query_ns);
      if (!present.ok()) {
        outcome->AddError(present.status().message());
      } else if (*present != options_.hashes) {
        outcome->AddError(absl::StrCat(*present, " of ", options_.hashes, " blocks are said to be there"));
      } else {
        ++outcome->queries;
      }
    }
  });
  round.elapsed_s = static_cast<double>(Clock::Real()->NowNs() - begin_ns) / 1e9;
  return round;
}

uint64_t Rounds::Check(Outcome* outcome) {
  if (op_ == Op::kExists) return CheckExists(outcome);
  if (op_ == Op::kPut) {
    Place(/*shuffled=*/true);
    outcome->Merge(OnEach([this](size_t i, Outcome* one) { peers_[i]->Get(batches_[i], one); }));
  }
  return WrongBytes();
}

uint64_t Rounds::WrongBytes() const {
  std::vector<uint64_t> wrong(batches_.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < batches_.size(); ++i) {
    threads.emplace_back([&, i] {
      for (const Batch& batch : batches_[i]) {
        for (size_t k = 0; k < batch.ids.size(); ++k) {
          wrong[i] += bench::WrongBytes(batch.ids[k], Piece(options_, batch.buffers[k]));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  uint64_t all = 0;
  for (uint64_t bytes : wrong) all += bytes;
  return all;
}

uint64_t Rounds::CheckExists(Outcome* outcome) {
  // Every other block of the query was never put.
  std::string keys;
  uint64_t there = 0;
  for (uint32_t k = 0; k < options_.hashes; ++k) {
    there += k % 2 == 0;
    bench::AppendHash(k % 2 == 0 ? ids_[k] : next_id_ + k, 0, &keys);
  }
  const auto present = peers_[0]->CountPresent(keys, options_.hashes);
  if (!present.ok()) outcome->AddError(present.status().message());
  return present.ok() && *present == there ? 0 : 1;
}

}  // namespace quarry::peers
