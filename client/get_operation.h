// A get on its way.
#ifndef QUARRY_CLIENT_GET_OPERATION_H_
#define QUARRY_CLIENT_GET_OPERATION_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "client/transfer_operation.h"

namespace quarry {

// Also the part of a fetch that moves bytes.
class GetOperation : public TransferOperation {
 public:
  // `window_bytes`: the credit that the get was started with; 0: no bound.
  GetOperation(Context context, std::vector<TransferItem> items, TransferSettings settings, uint64_t window_bytes);

  absl::Status OnMessage(const wire::ServerMessage& message) override;
  void OnItemFailed(uint32_t index, transport::TransferStatus status) override;

 protected:
  // `progress` of this request. Not OK: it names items that there are not.
  absl::Status OnProgress(const wire::GetProgress& progress);
  void SayFarewell(const absl::Status& status, OperationHost::EndedBy by) override;
  void OnBytesLanded(size_t bytes) override;
  void FillResult(const absl::Status& status, Completion* completion) override;
  // What the get took, if it ended well: for LoadAdvice.
  void RecordRate(const absl::Status& status) const;

 private:
  // What became of an item that the server has dropped.
  absl::Status Dropped();

  const uint64_t window_bytes_;
  const int64_t begin_ns_;
  std::atomic<uint64_t> uncredited_bytes_{0};  // landed and not given back to the server
  // For the confirmation.
  std::atomic<uint32_t> landed_items_{0};
  std::atomic<uint64_t> landed_bytes_{0};
  std::mutex corrupt_mutex_;
  std::vector<uint32_t> corrupt_items_;  // guarded by corrupt_mutex_
};

}  // namespace quarry

#endif  // QUARRY_CLIENT_GET_OPERATION_H_
