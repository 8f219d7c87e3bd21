// What `transfer` measures: a workload that is set up once and then run slice by slice.
#ifndef QUARRY_TOOLS_BENCH_WORKLOAD_H_
#define QUARRY_TOOLS_BENCH_WORKLOAD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "quarry/client.h"
#include "tools/bench/latencies.h"
#include "tools/bench/server_process.h"
#include "tools/bench/transfer.h"

namespace quarry::bench {

inline constexpr uint32_t kTokensPerBlock = 16;
inline constexpr size_t kSampledWords = 4;     // of every block that arrives, checked within the timed loop
inline constexpr uint64_t kMaxErrors = 1'000;  // then a slice ends early

struct Slice {
  uint64_t bytes = 0;
  uint64_t ops = 0;
  int64_t elapsed_ns = 0;
  uint64_t errors = 0;
  uint64_t wrong_bytes = 0;
  std::string first_error;
  Latencies latencies;
  // Tier ssd. put: spilled in that time; get, fetch: came from the SSD.
  uint64_t ssd_bytes = 0;
  int64_t ssd_ns = 0;
  uint64_t unspilled_blocks = 0;

  void Merge(const Slice& other);  // of a client beside: elapsed_ns is the longer one
  void AddError(const std::string& what);
  double gb_per_s() const { return elapsed_ns == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(elapsed_ns); }
};

class Workload {
 public:
  virtual ~Workload() = default;
  // All clients at once, for that long; done and verified when it returns.
  virtual Slice Run(int64_t duration_ns) = 0;
};

// Put, get and fetch. Connects, and fills the server with the working set where the
// operation needs it.
absl::StatusOr<std::unique_ptr<Workload>> MakeDataWorkload(const TransferOptions& options, const std::string& server);
// The same of a server whose SSD has the working set, or takes what is put. May start it again.
absl::StatusOr<std::unique_ptr<Workload>> MakeSsdWorkload(const TransferOptions& options, ServerUnderTest* server);
// Match. Connects, and puts `blocks` blocks.
absl::StatusOr<std::unique_ptr<Workload>> MakeMatchWorkload(const TransferOptions& options, const std::string& server);

// Runs run(i) for i in [0, count) on a thread each and waits.
template <typename Run>
void InParallel(size_t count, Run run) {
  std::vector<std::thread> threads;
  threads.reserve(count);
  for (size_t i = 0; i < count; ++i) threads.emplace_back([&run, i] { run(i); });
  for (std::thread& thread : threads) thread.join();
}

// A client and the benchmark's namespace for blocks of that size.
absl::StatusOr<std::unique_ptr<Client>> Connect(const TransferOptions& options, const std::string& server);
absl::StatusOr<Namespace> OpenBenchNamespace(Client* client, uint64_t block_bytes, uint32_t tokens_per_block);

// InvalidArgument when sizes do not go together; `blocks` is how many the server has.
absl::Status CheckSizes(const TransferOptions& options, uint64_t blocks);

// OK when every block is stored, now or since before.
absl::Status CheckStored(const TransferResult& result);
// Puts blocks `first`, `first` + `step`, .. below `end` with their content, hash HashOf(id).
absl::Status FillServer(Client* client, const Namespace& ns, uint64_t first, uint64_t end, uint64_t step);

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_WORKLOAD_H_
