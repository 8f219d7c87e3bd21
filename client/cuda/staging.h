// How GPU memory is read and written: through a ring of page-locked host memory. An operation is
// cut into parts that fit into the ring; each part is one host operation of the client, and the
// copies behind it (get) or before it (put). All of that happens on one thread, which has nothing
// to do while nothing is under way.
#ifndef QUARRY_CLIENT_CUDA_STAGING_H_
#define QUARRY_CLIENT_CUDA_STAGING_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "client/client_impl.h"
#include "client/cuda/copier.h"
#include "client/cuda/page_lock.h"
#include "client/cuda/slot_space.h"
#include "client/cuda/staged_operation.h"
#include "client/gpu_transfers.h"
#include "common/net/socket.h"

namespace quarry {

inline constexpr size_t kMaxStagedOperations = 1024;  // of a client, begun and not done
inline constexpr size_t kMaxParts = 16;               // on their way at the same time
inline constexpr size_t kMaxPartItems = 1024;
inline constexpr size_t kPartsOfTheRing = 8;  // a part takes no more than one of these, or one item

// InvalidArgument unless all of the range is allocated in the memory of that GPU.
absl::Status CheckAllocated(const cuda::Driver& driver, CUcontext context, MemoryRange range, int gpu);

class Staging : public GpuTransfers {
 public:
  // `ring` belongs to it from now on.
  Staging(ClientImpl* client, const cuda::Driver& driver, SharedMemory ring, UniqueFd wake,
          std::shared_ptr<AtomicCounters> counters);
  ~Staging() override;

  absl::Status Admit(MemoryRange range, int gpu) override;
  absl::Status Begin(std::unique_ptr<GpuRequest> request) override;
  void Cancel(OperationId operation) override;
  void Stop() override;

 private:
  using OperationPtr = std::shared_ptr<StagedOperation>;

  // Items of an operation that lie one behind the other in a slot of the ring.
  struct Part {
    uint64_t number = 0;  // what its host operation's completions are known by
    OperationPtr operation;
    std::vector<uint32_t> items;  // of the operation
    std::vector<size_t> offsets;  // of each in the ring
    size_t slot = 0;
    size_t bytes = 0;
    OperationId transfer = 0;  // the host operation; 0: not begun
    bool transfer_done = false;
    bool slot_free = true;  // no host operation touches the slot (any more)
    size_t copies = 0;
    std::vector<size_t> landed;  // of `items`: in the ring, and not yet in a copy
  };
  using PartPtr = std::shared_ptr<Part>;

  // A batch of copies between a part's slot and GPU memory.
  struct Copy {
    PartPtr part;
    std::vector<size_t> items;  // of the part's
    cuda::CopyBatch batch;
    CUstream stream = nullptr;
    size_t tickets = 0;    // under way
    bool dropped = false;  // no more of it is queued, and nobody waits for it
  };
  using CopyPtr = std::shared_ptr<Copy>;

  struct Gpu {
    std::unique_ptr<cuda::Copier> copier;
    std::deque<CopyPtr> waiting;                    // for descriptors; only the first is queued in part
    std::unordered_map<uint64_t, CopyPtr> running;  // by ticket
    absl::Status failed;                            // guarded by mutex_
  };

  absl::StatusOr<Gpu*> GpuFor(int number);
  absl::Status CheckStream(const Gpu& gpu, int number, CUstream stream) const;
  absl::Status CheckItems(const GpuRequest& request) const;
  void Wake();

  // The thread; the rest below is its own.
  void Run();
  void Wait();
  void TakeInbox();
  void EndLate();
  Gpu& GpuOfOperation(const StagedOperation& operation);

  // staging_parts.cc: parts and their host operations.
  void Start(const OperationPtr& operation);
  void StartMatch(const OperationPtr& operation);
  void StartParts();
  // False: there is no room.
  bool StartPart(const OperationPtr& operation);
  // Moves the next items of the operation into a part with a slot; nullptr: there is no room.
  PartPtr TakePart(const OperationPtr& operation);
  void BeginGet(const PartPtr& part);
  void BeginPut(const PartPtr& part);
  void TakeBegun(const PartPtr& part, absl::StatusOr<OperationId> begun);
  std::vector<Item> HostItems(const Part& part) const;
  void TakeCompletions();
  void OnCompletion(const Completion& completion);
  void OnMatched(const OperationPtr& operation, const Completion& completion);
  void OnItem(const PartPtr& part, const Completion& completion);
  void OnTransferDone(const PartPtr& part, const Completion& completion);
  void FreeIfOver(const PartPtr& part);
  void FinishIfComplete(const OperationPtr& operation);
  // Nothing happens when it is done.
  void Finish(const OperationPtr& operation, absl::Status status);

  // staging_copies.cc: copies.
  CUstream StreamOf(const StagedOperation& operation);
  void AddCopy(const PartPtr& part, std::vector<size_t> items);
  void CopyLanded();
  void QueueCopies(Gpu* gpu);
  void OnQueued(const CopyPtr& copy);
  bool PollCopies(Gpu* gpu);  // whether any has run
  void OnGpuFailed(Gpu* gpu, const absl::Status& why);
  void DropCopies(const OperationPtr& operation);
  void EndCopy(const CopyPtr& copy);
  absl::Status CudaError(const cuda::Outcome& outcome) const;

  ClientImpl* const client_;
  const cuda::Driver& driver_;
  const std::shared_ptr<AtomicCounters> counters_;
  const std::shared_ptr<CompletionQueue::Impl> completions_;  // of host operations
  const UniqueFd wake_;
  SharedMemory ring_;

  std::mutex mutex_;
  // Guarded by mutex_; the entries themselves are the thread's, but for `failed`.
  std::map<int, std::unique_ptr<Gpu>> gpus_;
  std::vector<OperationPtr> begun_;
  std::vector<OperationId> cancelled_;
  size_t operation_count_ = 0;
  bool stopping_ = false;

  // The thread's own.
  cuda::SlotSpace space_;
  uint64_t last_number_ = 0;
  std::unordered_map<OperationId, OperationPtr> operations_;  // not done
  std::set<std::pair<int64_t, OperationId>> deadlines_;       // of these
  std::deque<OperationPtr> waiting_;                          // have items that are in no part
  std::unordered_map<uint64_t, PartPtr> parts_;               // by number
  std::unordered_map<uint64_t, OperationPtr> matches_;        // the same of fetches
  std::set<uint64_t> landed_parts_;
  int64_t poll_ns_ = 0;  // how long to wait for copies that run

  cuda::PageLock ring_lock_;  // goes before the context it was made in
  std::thread thread_;
};

}  // namespace quarry

#endif  // QUARRY_CLIENT_CUDA_STAGING_H_
