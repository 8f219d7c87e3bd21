// Clients of the tests, and batches of blocks that they move.
#ifndef QUARRY_TESTS_INTEGRATION_PEER_H_
#define QUARRY_TESTS_INTEGRATION_PEER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "quarry/client.h"
#include "tests/integration/blocks.h"

namespace quarry::testing {

// No test waits so long unless it fails.
inline constexpr uint32_t kPatienceMs = 60'000;

// One group of full attention, blocks of 16 tokens, one shard each.
ModelSpec PlainSpec(uint64_t shard_bytes);

// A client with a namespace; ends the process when it cannot have them.
class Peer {
 public:
  Peer(const std::string& address, const ModelSpec& spec, ClientOptions options);
  Peer(const std::string& address, const ModelSpec& spec) : Peer(address, spec, ClientOptions()) {}

  Client* operator->() const { return client_.get(); }
  const Namespace& ns() const { return ns_; }
  const ModelSpec& spec() const { return ns_.spec(); }
  // Destroys the client. What was made of this peer may be used no more.
  void Leave() { client_.reset(); }
  // Nothing is begun, held or exposed.
  ::testing::AssertionResult IsIdle() const;

 private:
  std::unique_ptr<Client> client_;
  Namespace ns_;
};

// Consecutive blocks of a group's chain, and a registered buffer for one shard of each.
class Batch {
 public:
  // Ids first_id, first_id + 1, ...; `shard_bytes` 0: as the spec says.
  Batch(const Peer& peer, uint64_t first_id, size_t count, uint32_t group = 0, uint32_t shard = 0,
        size_t shard_bytes = 0);

  size_t size() const { return buffers_.size(); }
  Buffers& buffers() { return buffers_; }
  // The same buffers for other blocks.
  void MoveTo(uint64_t first_id);

  Bytes ContentAt(size_t i) const;
  void Fill();
  bool Holds(size_t i) const { return buffers_.Holds(i, ContentAt(i)); }
  ::testing::AssertionResult HoldsAll() const;
  ::testing::AssertionResult Untouched() const;

  Item ItemAt(size_t i) const;
  std::vector<Item> Items() const;
  Chain AsChain() const;
  std::vector<SegmentList> Destinations() const;

  // Fills and puts all. OK: each is stored, or was there; else Aborted names the first refusal.
  absl::Status Put(const PutOptions& options = {});
  // Puts again and again, at most for a minute, while the server is not to be had: the call may meet
  // the moment before the client has noticed, or found the server again.
  ::testing::AssertionResult EventuallyPuts();
  // Clears and gets all.
  absl::StatusOr<TransferResult> Get(const GetOptions& options = {});
  // Gets all, and every byte of each is right.
  ::testing::AssertionResult ComesBack(const GetOptions& options = {});
  // Gets the pieces from `first` to before `end` of all: every byte of them is right, and no other is
  // touched.
  ::testing::AssertionResult PiecesComeBack(size_t first, size_t end);
  // Gets all, and each is a miss for that reason; not a byte is written.
  ::testing::AssertionResult IsMissed(MissCause cause, const GetOptions& options = {});
  absl::StatusOr<MatchResult> Match(uint32_t lease_ms) { return Match({.lease_ms = lease_ms}); }
  absl::StatusOr<MatchResult> Match(const MatchOptions& options);

 private:
  const Peer* const peer_;
  const uint32_t group_;
  const uint32_t shard_;
  uint64_t first_id_;
  std::string hashes_;
  Buffers buffers_;
  MemoryRegion region_;
};

// All that an operation said: items in the order of their ends, then how it was done.
struct Ended {
  std::vector<Completion> items;
  Completion done;
};
// Waits until the operation, the only one that reports to the queue, is done and released.
Ended WaitForEnd(CompletionQueue* queue);

}  // namespace quarry::testing

#endif  // QUARRY_TESTS_INTEGRATION_PEER_H_
