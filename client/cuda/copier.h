// One GPU, and the copies between it and page-locked host memory: in batches, each of which is
// one launch of the copy kernel or one cuMemcpyBatchAsync. Depends on no package, so that
// tools/gpu-check builds it by itself.
#ifndef QUARRY_CLIENT_CUDA_COPIER_H_
#define QUARRY_CLIENT_CUDA_COPIER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "client/cuda/copy_piece.h"
#include "client/cuda/driver.h"
#include "client/cuda/page_lock.h"
#include "client/cuda/slot_space.h"

namespace quarry::cuda {

enum class Direction : uint8_t { kToDevice, kFromDevice };

// Copies that go together, in order. Those before `next` are queued.
class CopyBatch {
 public:
  // `count` pieces of `length` bytes, `stride` apart in the GPU's memory and one behind the other
  // in the host's. Pieces that adjoin on both sides become one.
  void Add(Direction direction, uint64_t device, uint64_t host, uint64_t length, uint64_t stride, uint64_t count);

  bool queued() const { return next_ == pieces_.size(); }
  uint64_t bytes() const { return bytes_; }
  size_t pieces() const { return pieces_.size(); }

 private:
  friend class Copier;
  std::vector<CopyPiece> pieces_;
  uint64_t bytes_ = 0;
  size_t next_ = 0;
  uint64_t next_offset_ = 0;  // of pieces_[next_]: what is queued already
};

struct CopierOptions {
  // Batches whose pieces are at least so long on average go by cuMemcpyBatchAsync, where the driver
  // has it and the stream allows it; the others by the kernel. A copy engine starts a piece in a
  // microsecond or more and a GPU's bus moves 64 KiB in that time, so it needs long pieces to keep
  // up, but takes no processor of the GPU. tools/gpu-check measures both.
  uint64_t batch_copy_bytes = 256 << 10;
  size_t descriptor_bytes = 1 << 20;  // of page-locked memory, for what the kernel is told
};

// Not thread-safe. Each call makes the context current for itself.
class Copier {
 public:
  // Retains the device's primary context and loads the kernel.
  static Outcome Open(const Driver& driver, int device, const CopierOptions& options, std::unique_ptr<Copier>* copier);
  // Not while copies run.
  ~Copier();
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  CUcontext context() const { return context_; }
  CUstream own_stream(Direction direction) const { return streams_[static_cast<size_t>(direction)]; }

  // Queues as much of the batch on the stream as there are descriptors for now. `ticket` names what
  // was queued; 0: nothing was. Not OK: neither was anything. CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
  // the stream is being captured.
  Outcome Queue(CopyBatch* batch, CUstream stream, uint64_t* ticket);
  // Appends the tickets of what has run since. Not OK: nothing that was queued runs any more, no
  // ticket will be heard of again, and the device is of no use.
  Outcome Poll(std::vector<uint64_t>* finished);
  bool idle() const { return under_way_.empty(); }
  // Behind all that is on the stream, which must not be captured.
  Outcome Record(CUevent event, CUstream stream);

 private:
  struct Run {
    uint64_t ticket;
    CUevent event;
    size_t descriptors;  // where they lie; kNone: the batch had none
  };
  static constexpr size_t kNone = SIZE_MAX;

  Copier(const Driver& driver, const CopierOptions& options);
  Outcome Prepare(int device);
  Outcome MakeStreams();
  Outcome CheckNotCaptured(CUstream stream) const;
  Outcome QueueIn(CopyBatch* batch, CUstream stream, uint64_t* ticket);
  Outcome TakeEvent(CUevent* event);
  void GiveBack(const Run& run);
  bool PrefersBatchCopy(const CopyBatch& batch, CUstream stream) const;
  Outcome BatchCopy(CopyBatch* batch, CUstream stream);
  // `descriptors` stays kNone while there is no room for them.
  Outcome Launch(CopyBatch* batch, CUstream stream, size_t* descriptors);

  const Driver& driver_;
  const CopierOptions options_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;  // retained
  CUmodule module_ = nullptr;
  CUfunction kernel_ = nullptr;
  CUstream streams_[2] = {nullptr, nullptr};  // by Direction
  LockedMemory descriptor_memory_;
  SlotSpace descriptor_space_;
  std::vector<CUevent> free_events_;
  std::map<CUstream, std::deque<Run>> under_way_;  // of each stream in order
  uint64_t last_ticket_ = 0;
};

}  // namespace quarry::cuda

#endif  // QUARRY_CLIENT_CUDA_COPIER_H_
