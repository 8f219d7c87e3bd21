// The seam between the client and GPU memory: client/cuda behind it, gpu_absent.cc where that is
// not built.
#ifndef QUARRY_CLIENT_GPU_TRANSFERS_H_
#define QUARRY_CLIENT_GPU_TRANSFERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/completion_queue_impl.h"
#include "client/counters.h"
#include "quarry/client.h"

namespace quarry {

class ClientImpl;

// The GPU whose memory it is; nullopt: host memory, which page-locked and managed memory are too.
// InvalidArgument: part of it is of another kind, or of another GPU.
absl::StatusOr<std::optional<int>> GpuOf(MemoryRange range);

// A get, put or fetch whose items lie in the memory of one GPU; checked as those of host memory.
struct GpuRequest {
  enum class Kind : uint8_t { kGet, kPut, kFetch };

  Kind kind = Kind::kGet;
  OperationId id = 0;
  uint64_t user_data = 0;
  int64_t deadline_ns = 0;  // Clock::Real
  std::shared_ptr<CompletionQueue::Impl> queue;
  Namespace ns;
  int gpu = 0;
  std::string texts;        // of items and chains: their hashes point into it
  std::vector<Item> items;  // of a fetch: one a destination, through all chains
  bool item_completions = false;
  void* stream = nullptr;
  void* event = nullptr;
  GetOptions get;             // of a get; and of the get that a fetch becomes
  PutOptions put;             // of a put
  FetchOptions fetch;         // of a fetch, as are:
  std::vector<Chain> chains;  // cut to as many hashes as there are destinations
};

// Thread-safe.
class GpuTransfers {
 public:
  virtual ~GpuTransfers() = default;

  // Before memory of that GPU is registered. InvalidArgument: not all of the range is allocated.
  virtual absl::Status Admit(MemoryRange range, int gpu) = 0;
  // OK: the operation will end, as any other. InvalidArgument, FailedPrecondition: of its stream;
  // ResourceExhausted; Internal: the GPU has failed.
  virtual absl::Status Begin(std::unique_ptr<GpuRequest> request) = 0;
  // Nothing happens when there is no such operation.
  virtual void Cancel(OperationId operation) = 0;
  // Ends what is under way (Cancelled); waits until all of it is released. The host operations that carried it
  // may still be under way, until which this object must stay.
  virtual void Stop() = 0;
};

// `client` outlives it.
absl::StatusOr<std::unique_ptr<GpuTransfers>> StartGpuTransfers(ClientImpl* client, size_t staging_bytes,
                                                                std::shared_ptr<AtomicCounters> counters);

}  // namespace quarry

#endif  // QUARRY_CLIENT_GPU_TRANSFERS_H_
