// What conformance tests move: slots at the server, exposed requests at the client.
#ifndef QUARRY_TESTS_UNIT_TRANSPORT_ITEMS_H_
#define QUARRY_TESTS_UNIT_TRANSPORT_ITEMS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "common/checksum.h"
#include "common/transport/chunk_verifier.h"
#include "common/transport/transport.h"
#include "tests/unit/transport/memory.h"

namespace quarry::transport {

// A slot with its sums, in guarded memory.
struct TestSlot {
  explicit TestSlot(size_t bytes) : memory(bytes), sums(ChunkCount(bytes)) {}
  TestSlot(const Bytes& payload, uint64_t identity_seed);
  bool Holds(const Bytes& payload) const;

  GuardedMemory memory;
  std::vector<uint64_t> sums;
  uint64_t root = 0;
};

// How a transfer ended; outlives it.
struct TransferEnd {
  std::atomic<int> finished{0};
  std::atomic<int> destroyed{0};
  std::atomic<TransferStatus> status{TransferStatus::kOk};
  std::atomic<uint64_t> root{0};
  bool done() const { return destroyed != 0; }
};
using TransferEndPtr = std::shared_ptr<TransferEnd>;

class TestTransfer : public Transfer {
 public:
  // Of the whole slot; WithRange narrows it.
  TestTransfer(Kind transfer_kind, ItemId item, TestSlot* slot);
  ~TestTransfer() override { ++end_->destroyed; }
  // A write of a part; edge sums are made from the slot as it is now.
  void WithRange(size_t range_offset, size_t range_bytes);
  void Finish(TransferStatus status) override;
  bool Prepare() override { return !refuse_; }
  void Refuse() { refuse_ = true; }
  void OnFinish(std::function<void(TransferStatus)> then) { then_ = std::move(then); }
  const TransferEndPtr& end() const { return end_; }

 private:
  const TransferEndPtr end_ = std::make_shared<TransferEnd>();
  bool refuse_ = false;
  std::function<void(TransferStatus)> then_;
};

class TestRequest : public ExposedRequest {
 public:
  struct Buffer {
    Buffer(Shape shape, size_t bytes) : memory(shape, bytes) {}
    ScatteredBuffer memory;
    Item item;
    std::atomic<int> arrived{0};
    std::atomic<int> sent{0};
    std::atomic<int> failed{0};
    std::atomic<size_t> arrived_bytes{0};
    std::atomic<TransferStatus> failure{TransferStatus::kOk};
    int reports() const { return arrived + sent + failed; }
  };

  // Before it is exposed.
  uint32_t Add(Shape shape, size_t bytes, uint64_t identity_seed, bool checksum = true);
  void OnAnyReport(std::function<void(uint32_t)> then) { then_ = std::move(then); }

  Buffer& operator[](uint32_t index) { return buffers_[index]; }
  uint32_t size() const { return static_cast<uint32_t>(buffers_.size()); }
  void Lock();
  void Unlock();

  const Item* item(uint32_t index) const override;
  void OnItemArrived(uint32_t index, size_t bytes) override;
  void OnItemSent(uint32_t index) override;
  void OnItemFailed(uint32_t index, TransferStatus status) override;

 private:
  std::deque<Buffer> buffers_;
  std::function<void(uint32_t)> then_;
};

inline constexpr uint64_t kIdentity = 0x1D;  // identity seed of items that need no other

}  // namespace quarry::transport

#endif  // QUARRY_TESTS_UNIT_TRANSPORT_ITEMS_H_
