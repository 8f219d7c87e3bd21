// One connection to the system under comparison, as a load program drives it.
#ifndef QUARRY_TOOLS_PEERS_PEER_H_
#define QUARRY_TOOLS_PEERS_PEER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tools/bench/latencies.h"

namespace quarry::peers {

struct LoadOptions {
  std::string server;   // HOST:PORT
  std::string metrics;  // quarry: of a server with an SSD, as grpc: puts go as fast as that takes them
  std::string grpc;
  std::string dir;   // blobdb: of its files
  bool wal = false;  // blobdb: log and sync every write
  uint64_t block_bytes = 2 << 20;
  uint64_t blocks = 512;     // of a round
  uint32_t batch = 32;       // blocks of one call
  uint32_t inflight = 2;     // calls under way a connection
  uint32_t window = 0;       // blocks under way a connection (blobdb: of one call); 0: those of the calls
  uint32_t connections = 2;  // each with a thread of its own
  uint32_t queries = 500;    // of a round of exists, a connection
  uint32_t hashes = 512;     // of one query
};

// Blocks that are put or got by one call: block ids[i] is at buffers[i].
struct Batch {
  std::vector<uint64_t> ids;
  std::vector<std::byte*> buffers;
};

// What one connection did in a round.
struct Outcome {
  uint64_t blocks = 0;   // that arrived, or were stored
  uint64_t queries = 0;  // answered
  uint64_t errors = 0;
  std::string first_error;
  bench::Latencies latencies;  // of calls or queries

  void AddError(absl::string_view what) {
    if (errors++ == 0) first_error = std::string(what);
  }
  void Merge(const Outcome& other);  // of a connection beside
};

// Not thread-safe. The key of a block is bench::HashOf(id).
class Peer {
 public:
  virtual ~Peer() = default;
  // All of `batches`, with LoadOptions::inflight of them under way.
  virtual void Put(absl::Span<const Batch> batches, Outcome* outcome) = 0;
  virtual void Get(absl::Span<const Batch> batches, Outcome* outcome) = 0;
  // How many of `keys` (bench::kHashBytes each, packed) are there.
  virtual absl::StatusOr<uint64_t> CountPresent(absl::string_view keys, uint32_t count) = 0;
  // Makes room where the system does not by itself; not timed.
  virtual absl::Status Forget(absl::Span<const uint64_t> ids) = 0;
};

// Buffers will lie in `arena`. It and `options`, of which the window may change, outlive the peer.
using PeerFactory =
    std::function<absl::StatusOr<std::unique_ptr<Peer>>(const LoadOptions& options, absl::Span<std::byte> arena)>;

// The main function of a load program: reads flags, then a command a line from standard
// input, and answers each with a line (README.md). Returns the exit code.
int RunLoad(int argc, char** argv, const char* name, const PeerFactory& factory);

}  // namespace quarry::peers

#endif  // QUARRY_TOOLS_PEERS_PEER_H_
