// The work that every system gets: rounds of a fixed number of blocks or queries.
#ifndef QUARRY_TOOLS_PEERS_ROUNDS_H_
#define QUARRY_TOOLS_PEERS_ROUNDS_H_

#include <memory>
#include <string>
#include <vector>

#include "tools/bench/buffer_pool.h"
#include "tools/peers/peer.h"

namespace quarry::peers {

enum class Op : uint8_t { kPut, kGet, kExists };

struct Round {
  Outcome outcome;
  double elapsed_s = 0;
};

// A round is prepared, run and checked; only Run is to be timed.
class Rounds {
 public:
  static absl::StatusOr<std::unique_ptr<Rounds>> Create(const LoadOptions& options, const PeerFactory& factory);

  // put: new blocks at random places of the arena. get: the blocks of the last put, in
  // random order, to random places, which are overwritten first. exists: random queries
  // about these blocks.
  absl::Status Prepare(Op op);
  // Gives up all connections and makes them anew: the server was started again and has these addresses.
  absl::Status Reconnect(const std::string& server, const std::string& metrics, const std::string& grpc);
  Round Run();
  void SetWindow(uint32_t blocks) { options_.window = blocks; }
  // Every byte: put: of all blocks, read back to other places; get: of all that arrived.
  // exists: that blocks which are not there are not counted. Returns the wrong bytes (or
  // wrong answers); errors go to `outcome`.
  uint64_t Check(Outcome* outcome);

 private:
  Rounds(const LoadOptions& options, PeerFactory factory, std::unique_ptr<bench::BufferPool> arena);

  absl::Status Connect();
  void Place(bool shuffled);
  // Runs use(connection) on a thread each and merges what they did.
  template <typename Use>
  Outcome OnEach(Use use);
  uint64_t WrongBytes() const;
  uint64_t CheckExists(Outcome* outcome);

  LoadOptions options_;
  const PeerFactory factory_;
  std::unique_ptr<bench::BufferPool> arena_;
  std::vector<std::unique_ptr<Peer>> peers_;
  Op op_ = Op::kPut;
  uint64_t next_id_ = 0;
  uint64_t random_ = 1;
  std::vector<uint64_t> ids_;                      // of the last put
  std::vector<std::vector<Batch>> batches_;        // one list a connection
  std::vector<std::vector<std::string>> queries_;  // one list a connection; packed keys
};

}  // namespace quarry::peers

#endif  // QUARRY_TOOLS_PEERS_ROUNDS_H_
