#include "tests/integration/gpu_batch.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "tests/fakes/fake_cuda/fake_cuda.h"

namespace quarry::testing {
namespace {

constexpr std::byte kEmpty{0xA7};

void MustDo(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: CUDA error %d\n", what, static_cast<int>(result));
  std::abort();
}

}  // namespace

::testing::AssertionResult BecomesIdle(const Peer& peer) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
  while (!peer.IsIdle() && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
  return peer.IsIdle();
}

GpuScope::GpuScope(int gpu) : gpu_(gpu) {
  MustDo(cuInit(0), "cuInit");
  CUcontext context = nullptr;
  MustDo(cuDevicePrimaryCtxRetain(&context, gpu_), "cuDevicePrimaryCtxRetain");
  MustDo(cuCtxPushCurrent(context), "cuCtxPushCurrent");
}

GpuScope::~GpuScope() {
  CUcontext context = nullptr;
  MustDo(cuCtxPopCurrent(&context), "cuCtxPopCurrent");
  MustDo(cuDevicePrimaryCtxRelease(gpu_), "cuDevicePrimaryCtxRelease");
}

GpuStream::GpuStream(int gpu) : gpu_(gpu) {
  const GpuScope scope(gpu_);
  MustDo(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  MustDo(cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
}

GpuStream::~GpuStream() {
  const GpuScope scope(gpu_);
  MustDo(cuStreamDestroy(stream_), "cuStreamDestroy");
  MustDo(cuEventDestroy(event_), "cuEventDestroy");
}

void GpuStream::Synchronize() const {
  const GpuScope scope(gpu_);
  MustDo(cuStreamSynchronize(stream_), "cuStreamSynchronize");
}

bool GpuStream::EventIsReached() const {
  const GpuScope scope(gpu_);
  const CUresult result = cuEventQuery(event_);
  if (result != CUDA_ERROR_NOT_READY) MustDo(result, "cuEventQuery");
  return result == CUDA_SUCCESS;
}

GpuBatch::GpuBatch(const Peer& peer, int gpu, uint64_t first_id, size_t count, const GpuLayout& layout, bool in_parts)
    : peer_(&peer),
      gpu_(gpu),
      first_id_(first_id),
      count_(count),
      layout_(layout),
      pieces_((layout.item_bytes + layout.piece_bytes - 1) / layout.piece_bytes),
      bytes_(layout.first_byte + count * pieces_ * (layout.piece_bytes + layout.gap_bytes)) {
  for (size_t i = 0; i < count_; ++i) hashes_ += HashOf(first_id_ + i);
  const GpuScope scope(gpu_);
  if (in_parts) {
    memory_ = fakes::cuda::AllocateInParts(gpu_, bytes_);
  } else {
    MustDo(cuMemAlloc(&memory_, bytes_), "cuMemAlloc");
  }
  Clear();
  auto region = peer->RegisterMemory(base(), bytes_);
  if (!region.ok()) {
    std::fprintf(stderr, "RegisterMemory: %s\n", region.status().ToString().c_str());
    std::abort();
  }
  region_ = *std::move(region);
}

GpuBatch::~GpuBatch() {
  region_ = MemoryRegion();
  const GpuScope scope(gpu_);
  MustDo(cuMemFree(memory_), "cuMemFree");
}

size_t GpuBatch::PieceBytes(size_t piece) const {
  return std::min(layout_.piece_bytes, layout_.item_bytes - piece * layout_.piece_bytes);
}

size_t GpuBatch::Offset(size_t item, size_t piece) const {
  return layout_.first_byte + (piece * count_ + item) * (layout_.piece_bytes + layout_.gap_bytes);
}

SegmentList GpuBatch::segments(size_t item) const {
  const size_t stride = count_ * (layout_.piece_bytes + layout_.gap_bytes);
  const size_t whole = layout_.item_bytes / layout_.piece_bytes;
  SegmentList list;
  if (whole > 0) list.push_back({base() + Offset(item, 0), layout_.piece_bytes, stride, whole});
  if (whole < pieces_) list.push_back({base() + Offset(item, whole), PieceBytes(whole), 0, 1});
  return list;
}

std::vector<Item> GpuBatch::Items() const {
  std::vector<Item> items(count_);
  for (size_t i = 0; i < count_; ++i) {
    items[i].hash = AsChain().hashes[i];
    items[i].segments = segments(i);
    items[i].depth = i;
  }
  return items;
}

std::vector<SegmentList> GpuBatch::Destinations() const {
  std::vector<SegmentList> destinations;
  for (size_t i = 0; i < count_; ++i) destinations.push_back(segments(i));
  return destinations;
}

Bytes GpuBatch::Image(size_t first, size_t end) const {
  Bytes image(bytes_, kEmpty);
  for (size_t item = first; item < end; ++item) {
    const Bytes content = ContentOf(first_id_ + item, 0, 0, layout_.item_bytes);
    for (size_t piece = 0; piece < pieces_; ++piece) {
      std::memcpy(image.data() + Offset(item, piece), content.data() + piece * layout_.piece_bytes, PieceBytes(piece));
    }
  }
  return image;
}

Bytes GpuBatch::Read() const {
  const GpuScope scope(gpu_);
  Bytes image(bytes_);
  MustDo(cuMemcpyDtoH(image.data(), memory_, bytes_), "cuMemcpyDtoH");
  return image;
}

void GpuBatch::Write(const Bytes& image) const {
  const GpuScope scope(gpu_);
  MustDo(cuMemcpyHtoD(memory_, image.data(), image.size()), "cuMemcpyHtoD");
}

::testing::AssertionResult GpuBatch::Holds(size_t first, size_t end) const {
  const Bytes there = Read();
  const Bytes expected = Image(first, end);
  if (there == expected) return ::testing::AssertionSuccess();
  const auto differs = std::mismatch(there.begin(), there.end(), expected.begin()).first - there.begin();
  return ::testing::AssertionFailure() << "byte " << differs << " of " << bytes_ << " is not what blocks " << first
                                       << " to " << end << " and gaps are";
}

::testing::AssertionResult GpuBatch::HoldsWhatIsSaid(const std::vector<ItemResult>& items) const {
  const Bytes expected = Image(0, count_);
  Bytes there = Read();
  for (size_t item = 0; item < count_; ++item) {
    const bool said = items[item].status.ok() && items[item].miss == MissCause::kNone;
    for (size_t piece = 0; piece < pieces_; ++piece) {
      const size_t at = Offset(item, piece);
      if (said && std::memcmp(there.data() + at, expected.data() + at, PieceBytes(piece)) != 0) {
        return ::testing::AssertionFailure() << "block " << item << " has other bytes in piece " << piece;
      }
      std::memcpy(there.data() + at, expected.data() + at, PieceBytes(piece));
    }
  }
  if (there == expected) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "a gap was written to";
}

::testing::AssertionResult GpuBatch::Put(const PutOptions& options) {
  Fill();
  const auto put = (*peer_)->Put(peer_->ns(), Items(), options);
  if (!put.ok()) return ::testing::AssertionFailure() << put.status();
  for (size_t i = 0; i < count_; ++i) {
    if (put->items[i].outcome == PutOutcome::kStored) continue;
    return ::testing::AssertionFailure() << "block " << i << ": " << put->items[i].status << " "
                                         << Name(put->items[i].refusal);
  }
  if (put->bytes == count_ * layout_.item_bytes) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << put->bytes << " bytes are said to be stored";
}

::testing::AssertionResult GpuBatch::ComesBack(const GetOptions& options) {
  Clear();
  const auto got = (*peer_)->Get(peer_->ns(), Items(), options);
  if (!got.ok()) return ::testing::AssertionFailure() << got.status();
  for (size_t i = 0; i < count_; ++i) {
    if (got->items[i].status.ok() && got->items[i].miss == MissCause::kNone) continue;
    return ::testing::AssertionFailure() << "block " << i << ": " << got->items[i].status << " "
                                         << Name(got->items[i].miss);
  }
  if (got->bytes != count_ * layout_.item_bytes) return ::testing::AssertionFailure() << got->bytes << " bytes came";
  return HoldsAll();
}

}  // namespace quarry::testing
