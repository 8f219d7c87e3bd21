// A client's memory, handed out in equal pieces at random places, as an engine's paged KV
// cache looks after some uptime.
#ifndef QUARRY_TOOLS_BENCH_BUFFER_POOL_H_
#define QUARRY_TOOLS_BENCH_BUFFER_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/net/socket.h"
#include "quarry/segments.h"
#include "tools/bench/gpu_memory.h"

namespace quarry::bench {

enum class Buffers : uint8_t {
  kHost,
  kMemfd,  // a sealed one, which a server on this host can map
  kCuda,   // of the first GPU: not to be touched by the host
};

// Not thread-safe.
class BufferPool {
 public:
  // Maps and faults in `bytes`, in huge pages where the kernel gives them, rounded down to
  // whole pieces. InvalidArgument when not even one piece fits, ResourceExhausted when the
  // machine has no such memory, Unavailable when there is no GPU.
  static absl::StatusOr<std::unique_ptr<BufferPool>> Create(size_t bytes, size_t piece_bytes, uint64_t seed,
                                                            Buffers kind = Buffers::kHost);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  std::byte* base() const { return base_; }
  size_t bytes() const { return bytes_; }
  size_t free_pieces() const { return free_.size(); }

  // `bytes` in pieces that nobody else holds; the last one may be cut short. Empty when
  // there are not enough.
  SegmentList Take(size_t bytes);
  void Return(const SegmentList& segments);

  // All of it becomes the content of block `id`.
  absl::Status Fill(uint64_t id);
  // What lies in the segments, where the host may read it: a copy, if it must, that lasts until the
  // next call.
  absl::StatusOr<SegmentList> Readable(const SegmentList& segments);

 private:
  BufferPool(UniqueFd file, std::unique_ptr<GpuMemory> gpu, std::byte* base, size_t bytes, size_t piece_bytes,
             uint64_t seed);

  const UniqueFd file_;
  const std::unique_ptr<GpuMemory> gpu_;  // nullptr: host memory
  std::byte* const base_;
  const size_t bytes_;
  const size_t piece_bytes_;
  uint64_t random_;
  std::vector<uint32_t> free_;  // places, in no order
  std::vector<std::byte> copy_;
};

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_BUFFER_POOL_H_
