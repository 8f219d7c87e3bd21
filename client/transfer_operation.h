// What gets, puts and fetches have in common: items, each of which ends once, and buffers
// that the server reads or writes meanwhile.
#ifndef QUARRY_CLIENT_TRANSFER_OPERATION_H_
#define QUARRY_CLIENT_TRANSFER_OPERATION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "client/operation.h"
#include "common/transport/transport.h"
#include "quarry/client.h"

namespace quarry {

// Where an item's bytes lie and how they are summed.
struct TransferItem {
  SegmentList segments;  // validated
  size_t bytes = 0;      // TotalBytes(segments)
  uint64_t identity_seed = 0;
};

struct TransferSettings {
  bool checksum = true;
  bool item_completions = false;
};

class TransferOperation : public Operation, public transport::ExposedRequest {
 public:
  TransferOperation(Context context, std::vector<TransferItem> items, TransferSettings settings);

  transport::ExposedRequest* exposed() override { return this; }
  void OnPosted() override { EndWhenComplete(); }

  const ExposedRequest::Item* item(uint32_t index) const override;
  void OnItemArrived(uint32_t index, size_t bytes) override;
  void OnItemSent(uint32_t) override {}  // its outcome follows
  void OnItemFailed(uint32_t index, transport::TransferStatus status) override;

 protected:
  void FillResult(const absl::Status& status, Completion* completion) override;
  // The result of the items, once; items that have not ended get `status`.
  std::shared_ptr<TransferResult> TakeResult(const absl::Status& status);

  size_t item_count() const { return slots_.size(); }
  size_t item_bytes(uint32_t index) const { return slots_[index].exposed.bytes; }
  // Any thread. Records how an item ended, unless it has ended or the operation is done.
  void EndItem(uint32_t index, ItemResult result, size_t bytes = 0);
  bool ItemEnded(uint32_t index) const;
  // Loop thread. The server has said all about this operation.
  void SetServerDone();
  // Any thread. An item of a get has come, well or not, and is about to end.
  virtual void OnBytesLanded(size_t) {}
  // Loop thread. Whether what the server says comes after the deadline; then the operation
  // ends with DeadlineExceeded, whatever its items say. The server's deadline is later than
  // the client's by the way of the request, but may be heard of first.
  bool IsLate();
  const absl::Status& final_status() const { return final_status_; }

 private:
  struct Slot {
    SegmentList segments;
    ExposedRequest::Item exposed;
    ItemResult result;
    bool ended = false;
  };

  // Loop thread.
  void EndWhenComplete();

  const bool item_completions_;
  absl::Status final_status_;  // loop only; how the operation ends once all items have
  std::vector<Slot> slots_;    // as many as items from the start; results guarded by mutex_
  mutable std::mutex mutex_;
  // The rest is guarded by mutex_.
  size_t open_items_;
  uint64_t bytes_ = 0;
  bool server_done_ = false;
  bool done_ = false;
};

}  // namespace quarry

#endif  // QUARRY_CLIENT_TRANSFER_OPERATION_H_
