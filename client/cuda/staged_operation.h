// A get, put or fetch of GPU memory: its items, how they ended, and its completions. The host
// operations and copies that carry it are staging's.
#ifndef QUARRY_CLIENT_CUDA_STAGED_OPERATION_H_
#define QUARRY_CLIENT_CUDA_STAGED_OPERATION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "client/counters.h"
#include "client/gpu_transfers.h"
#include "quarry/client.h"

namespace quarry {

// Only on the staging thread, once begun.
class StagedOperation {
 public:
  StagedOperation(std::unique_ptr<GpuRequest> request, std::shared_ptr<AtomicCounters> counters);

  const GpuRequest& request() const { return *request_; }
  OperationId id() const { return request_->id; }
  bool puts() const { return request_->kind == GpuRequest::Kind::kPut; }
  bool done() const { return done_; }
  size_t item_bytes(uint32_t item) const { return item_bytes_[item]; }

  // Takes what a match of its chains has found: what of it is usable within the fetch's bounds moves, the rest
  // ends here. Sets `lease`.
  void TakeMatch(const MatchResult& match);
  // Records how an item ended, unless it has or the operation is done.
  void EndItem(uint32_t item, ItemResult result, size_t bytes = 0);
  // Every item has ended, or will be moved by none of its parts.
  bool AllEnded() const { return open_items_ == 0; }
  // Once: reports kDone; items that have not ended get `status`.
  void Finish(const absl::Status& status, bool held);
  // Once, after Finish with held = true.
  void Release();
  bool held() const { return held_; }

  // What staging keeps with it.
  std::vector<uint32_t> order;  // items to move, in order; those before `next` are in parts
  size_t next = 0;
  size_t transfers = 0;  // host operations begun or to begin for its parts, and not done
  size_t copies = 0;     // that touch its buffers, or are about to
  uint64_t bytes_on_their_way = 0;
  bool parked = false;           // waits until what is on its way is less than its window
  Lease lease;                   // of a fetch's match
  bool let_go_of_lease = false;  // at the end: it is not the caller's

 private:
  Completion MakeCompletion(Completion::Kind kind) const;

  const std::unique_ptr<GpuRequest> request_;
  const std::shared_ptr<AtomicCounters> counters_;
  std::vector<size_t> item_bytes_;
  std::vector<uint8_t> ended_;  // 0 or 1, by item
  size_t open_items_;
  std::shared_ptr<TransferResult> result_ = std::make_shared<TransferResult>();
  std::shared_ptr<FetchResult> fetch_;  // of a fetch
  bool done_ = false;
  bool held_ = false;
};

}  // namespace quarry

#endif  // QUARRY_CLIENT_CUDA_STAGED_OPERATION_H_
