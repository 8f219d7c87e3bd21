// Blocks in the memory of a FAKE GPU (tests/fakes/fake_cuda), scattered as an engine has them.
#ifndef QUARRY_TESTS_INTEGRATION_GPU_BATCH_H_
#define QUARRY_TESTS_INTEGRATION_GPU_BATCH_H_

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/integration/peer.h"

namespace quarry::testing {

// Until nothing is begun, held or exposed: what carried an operation that was cancelled ends a little later.
::testing::AssertionResult BecomesIdle(const Peer& peer);

// The primary context of a GPU, current for a scope.
class GpuScope {
 public:
  explicit GpuScope(int gpu);
  ~GpuScope();
  GpuScope(const GpuScope&) = delete;
  GpuScope& operator=(const GpuScope&) = delete;

 private:
  const int gpu_;
};

struct GpuLayout {
  size_t item_bytes = 0;
  size_t piece_bytes = 0;  // the last may be shorter
  size_t gap_bytes = 0;    // behind each piece
  size_t first_byte = 0;   // of the memory that is not a gap
};

// A stream and an event of a GPU's primary context.
class GpuStream {
 public:
  explicit GpuStream(int gpu = 0);
  ~GpuStream();
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;
  CUstream get() const { return stream_; }
  CUevent event() const { return event_; }
  void Synchronize() const;
  bool EventIsReached() const;

 private:
  const int gpu_;
  CUstream stream_ = nullptr;
  CUevent event_ = nullptr;
};

// Registered GPU memory for one shard of each of consecutive blocks; whatever is said about it is said of every byte.
class GpuBatch {
 public:
  GpuBatch(const Peer& peer, int gpu, uint64_t first_id, size_t count, const GpuLayout& layout, bool in_parts = false);
  ~GpuBatch();
  GpuBatch(const GpuBatch&) = delete;
  GpuBatch& operator=(const GpuBatch&) = delete;

  size_t size() const { return count_; }
  std::byte* base() const { return reinterpret_cast<std::byte*>(memory_); }
  size_t bytes() const { return bytes_; }
  MemoryRegion& region() { return region_; }
  SegmentList segments(size_t item) const;
  std::vector<Item> Items() const;
  Chain AsChain() const { return {.hashes = HashSpan(hashes_, kHashBytes)}; }
  std::vector<SegmentList> Destinations() const;

  // Writes the blocks' bytes; Clear the same everywhere.
  void Fill() { Write(Image(0, count_)); }
  void Clear() { Write(Image(0, 0)); }
  // The memory as it is when just the blocks [first, end) are there.
  Bytes Image(size_t first, size_t end) const;
  Bytes Read() const;
  void Write(const Bytes& image) const;
  ::testing::AssertionResult Holds(size_t first, size_t end) const;
  ::testing::AssertionResult HoldsAll() const { return Holds(0, count_); }
  ::testing::AssertionResult Untouched() const { return Holds(0, 0); }

  // The items of a get that ended well are there, and no gap was written to.
  ::testing::AssertionResult HoldsWhatIsSaid(const std::vector<ItemResult>& items) const;

  // Fills and puts all, which are then stored.
  ::testing::AssertionResult Put(const PutOptions& options = {});
  // Clears, gets all, and they are all there.
  ::testing::AssertionResult ComesBack(const GetOptions& options = {});

 private:
  size_t PieceBytes(size_t piece) const;
  size_t Offset(size_t item, size_t piece) const;

  const Peer* const peer_;
  const int gpu_;
  const uint64_t first_id_;
  const size_t count_;
  const GpuLayout layout_;
  const size_t pieces_;
  const size_t bytes_;
  std::string hashes_;
  CUdeviceptr memory_ = 0;
  MemoryRegion region_;
};

}  // namespace quarry::testing

#endif  // QUARRY_TESTS_INTEGRATION_GPU_BATCH_H_
