// One client of a put, get or fetch workload: keeps some calls under way, checks what
// arrives.
#ifndef QUARRY_TOOLS_BENCH_DATA_CLIENT_H_
#define QUARRY_TOOLS_BENCH_DATA_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "quarry/client.h"
#include "tools/bench/buffer_pool.h"
#include "tools/bench/workload.h"

namespace quarry::bench {

// What a workload of the SSD tier does otherwise: blocks are parts of chains. A put is one chain;
// a get is of a part of one, after a match with a lease.
struct ChainHooks {
  // Whether a put may begin now. With `wait` it waits for that; false then: none may ever.
  std::function<bool(bool wait)> may_put;
  // First of the TransferOptions::batch blocks of the next get or fetch.
  std::function<uint64_t()> next_run;
};

class DataClient {
 public:
  // `blocks` distinct blocks of ids from 0 are in the server (get and fetch). `number`
  // tells the clients of a run apart.
  static absl::StatusOr<std::unique_ptr<DataClient>> Create(const TransferOptions& options, const std::string& server,
                                                            uint32_t number, uint64_t blocks);

  // Before Run. Without, blocks are drawn at random and are of no chain.
  void UseChains(ChainHooks hooks) { chains_ = std::move(hooks); }

  Client* client() { return client_.get(); }
  const Namespace& ns() const { return ns_; }

  // Begins calls until `end_ns` (Clock::Real), then waits for those under way.
  // Slice::elapsed_ns counts from start_ns to the last one's end.
  Slice Run(int64_t start_ns, int64_t end_ns);
  // After Run: checks the last calls in full.
  void Check(Slice* slice);

 private:
  struct Call {
    std::vector<uint64_t> ids;
    std::vector<SegmentList> buffers;  // one a block
    std::string hashes;
    Lease lease;
    int64_t begin_ns = 0;
    bool ok = false;
  };

  DataClient(const TransferOptions& options, uint32_t number, uint64_t blocks)
      : options_(options), number_(number), blocks_(blocks), random_(number + 1) {}
  absl::Status Init(const std::string& server);

  bool MayBegin(bool wait, Slice* slice);
  // False, with an error in the slice, when it could not be begun.
  bool Begin(Call* call, Slice* slice);
  absl::Status Submit(Call* call);
  absl::Status LeaseRun(Call* call);
  void ChooseBlocks(Call* call);
  std::vector<Item> Items(const Call& call) const;
  // Waits for one call to end; its index.
  size_t WaitForOne(Slice* slice);
  void Account(const Completion& completion, Call* call, Slice* slice);
  void CheckSome(const Call& call, Slice* slice);
  void CheckBlock(const Call& call, size_t i, Slice* slice);
  void CheckAll(const Call& call, Slice* slice);
  // Reads back what a put stored and compares it with its source.
  void ReadBack(const Call& call, Slice* slice);
  void ReturnBuffers(Call* call);

  const TransferOptions& options_;
  const uint32_t number_;
  const uint64_t blocks_;
  ChainHooks chains_;
  uint64_t random_;
  uint64_t next_put_ = 0;
  uint64_t ended_calls_ = 0;
  // In this order, so that regions go before the client, and all before the memory.
  std::unique_ptr<BufferPool> pool_;
  std::unique_ptr<BufferPool> read_back_;
  std::unique_ptr<CompletionQueue> queue_;
  std::unique_ptr<Client> client_;
  Namespace ns_;
  MemoryRegion region_;
  MemoryRegion read_back_region_;
  std::vector<Call> calls_;  // by user_data
};

// All of them at once, for that long; checks what they did after the last has ended.
Slice RunClients(const std::vector<std::unique_ptr<DataClient>>& clients, int64_t duration_ns);

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_DATA_CLIENT_H_
