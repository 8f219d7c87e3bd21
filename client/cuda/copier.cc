#include "client/cuda/copier.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "client/cuda/copy_kernel_image.h"

namespace quarry::cuda {
namespace {

uint64_t DescriptorsOf(uint64_t bytes) { return (bytes + kKernelPieceBytes - 1) / kKernelPieceBytes; }

}  // namespace

void CopyBatch::Add(Direction direction, uint64_t device, uint64_t host, uint64_t length, uint64_t stride,
                    uint64_t count) {
  bytes_ += length * count;
  if (count > 1 && stride == length) {
    length *= count;
    count = 1;
  }
  for (uint64_t i = 0; i < count; ++i, device += stride, host += length) {
    const uint64_t to = direction == Direction::kToDevice ? device : host;
    const uint64_t from = direction == Direction::kToDevice ? host : device;
    if (!pieces_.empty() && pieces_.back().to + pieces_.back().bytes == to &&
        pieces_.back().from + pieces_.back().bytes == from) {
      pieces_.back().bytes += length;
    } else {
      pieces_.push_back({to, from, length});
    }
  }
}

Copier::Copier(const Driver& driver, const CopierOptions& options)
    : driver_(driver), options_(options), descriptor_space_(options.descriptor_bytes) {}

Outcome Copier::Open(const Driver& driver, int device, const CopierOptions& options, std::unique_ptr<Copier>* copier) {
  std::unique_ptr<Copier> made(new Copier(driver, options));
  if (Outcome outcome = made->Prepare(device); !outcome.ok()) return outcome;
  *copier = std::move(made);
  return {};
}

Outcome Copier::Prepare(int device) {
  if (Outcome got("cuDeviceGet", driver_.DeviceGet(&device_, device)); !got.ok()) return got;
  int same_addresses = 0;
  const Outcome asked("cuDeviceGetAttribute",
                      driver_.DeviceGetAttribute(&same_addresses,
                                                 CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, device_));
  if (!asked.ok()) return asked;
  if (same_addresses == 0) return {"host addresses on the GPU", CUDA_ERROR_NOT_SUPPORTED};
  if (Outcome got("cuDevicePrimaryCtxRetain", driver_.DevicePrimaryCtxRetain(&context_, device_)); !got.ok()) {
    context_ = nullptr;
    return got;
  }
  if (Outcome locked = descriptor_memory_.Allocate(driver_, context_, options_.descriptor_bytes); !locked.ok()) {
    return locked;
  }
  const ContextScope scope(driver_, context_);
  if (!scope.outcome().ok()) return scope.outcome();
  if (Outcome loaded("cuModuleLoadData", driver_.ModuleLoadData(&module_, kCopyKernelImage)); !loaded.ok()) {
    module_ = nullptr;
    return loaded;
  }
  const Outcome found("cuModuleGetFunction", driver_.ModuleGetFunction(&kernel_, module_, kCopyKernel));
  if (!found.ok()) return found;
  // Drivers load code at its first launch otherwise, which may wait for all that the GPU does.
  if (driver_.FuncLoad != nullptr) {
    if (Outcome loaded("cuFuncLoad", driver_.FuncLoad(kernel_)); !loaded.ok()) return loaded;
  }
  return MakeStreams();
}

Outcome Copier::MakeStreams() {
  for (CUstream& stream : streams_) {
    if (Outcome made("cuStreamCreate", driver_.StreamCreate(&stream, CU_STREAM_NON_BLOCKING)); !made.ok()) {
      stream = nullptr;
      return made;
    }
  }
  return {};
}

Copier::~Copier() {
  if (context_ == nullptr) return;
  {
    const ContextScope scope(driver_, context_);
    // What fails here fails because the context is beyond repair, and all in it with it.
    if (scope.outcome().ok()) {
      for (const auto& [stream, runs] : under_way_) {
        for (const Run& run : runs) driver_.EventDestroy(run.event);
      }
      for (CUevent event : free_events_) driver_.EventDestroy(event);
      for (CUstream stream : streams_) {
        if (stream != nullptr) driver_.StreamDestroy(stream);
      }
      if (module_ != nullptr) driver_.ModuleUnload(module_);
    }
  }
  descriptor_memory_.Free();
  driver_.DevicePrimaryCtxRelease(device_);
}

Outcome Copier::TakeEvent(CUevent* event) {
  if (!free_events_.empty()) {
    *event = free_events_.back();
    free_events_.pop_back();
    return {};
  }
  return {"cuEventCreate", driver_.EventCreate(event, CU_EVENT_DISABLE_TIMING)};
}

Outcome Copier::Queue(CopyBatch* batch, CUstream stream, uint64_t* ticket) {
  *ticket = 0;
  const ContextScope scope(driver_, context_);
  if (!scope.outcome().ok()) return scope.outcome();
  return QueueIn(batch, stream, ticket);
}

Outcome Copier::CheckNotCaptured(CUstream stream) const {
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  if (Outcome asked("cuStreamIsCapturing", driver_.StreamIsCapturing(stream, &capture)); !asked.ok()) return asked;
  const bool captured = capture != CU_STREAM_CAPTURE_STATUS_NONE;
  return {"cuStreamIsCapturing", captured ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS};
}

Outcome Copier::QueueIn(CopyBatch* batch, CUstream stream, uint64_t* ticket) {
  if (Outcome free = CheckNotCaptured(stream); !free.ok()) return free;
  Run run{last_ticket_ + 1, nullptr, kNone};
  if (Outcome taken = TakeEvent(&run.event); !taken.ok()) return taken;
  const Outcome queued =
      PrefersBatchCopy(*batch, stream) ? BatchCopy(batch, stream) : Launch(batch, stream, &run.descriptors);
  if (!queued.ok() || (run.descriptors == kNone && !batch->queued())) {
    free_events_.push_back(run.event);
    return queued;
  }
  const Outcome recorded("cuEventRecord", driver_.EventRecord(run.event, stream));
  if (!recorded.ok()) {
    // Its end could not be seen, so it is waited for; that fails where nothing runs any more.
    driver_.CtxSynchronize();
    GiveBack(run);
    return recorded;
  }
  *ticket = last_ticket_ = run.ticket;
  under_way_[stream].push_back(run);
  return {};
}

void Copier::GiveBack(const Run& run) {
  free_events_.push_back(run.event);
  if (run.descriptors != kNone) descriptor_space_.Give(run.descriptors);
}

bool Copier::PrefersBatchCopy(const CopyBatch& batch, CUstream stream) const {
  if (driver_.MemcpyBatchAsync == nullptr || stream == CU_STREAM_LEGACY) return false;
  // Once begun by the kernel, to its end: `next` counts pieces of either.
  return batch.next_ == 0 && batch.next_offset_ == 0 &&
         batch.bytes_ / batch.pieces_.size() >= options_.batch_copy_bytes;
}

Outcome Copier::BatchCopy(CopyBatch* batch, CUstream stream) {
  const size_t count = batch->pieces_.size();
  std::vector<CUdeviceptr> to(count);
  std::vector<CUdeviceptr> from(count);
  std::vector<size_t> sizes(count);
  for (size_t i = 0; i < count; ++i) {
    to[i] = batch->pieces_[i].to;
    from[i] = batch->pieces_[i].from;
    sizes[i] = batch->pieces_[i].bytes;
  }
  CUmemcpyAttributes_v1 attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  size_t applies_from = 0;
  size_t failed = 0;
  const Outcome copied("cuMemcpyBatchAsync", driver_.MemcpyBatchAsync(to.data(), from.data(), sizes.data(), count,
                                                                      &attributes, &applies_from, 1, &failed, stream));
  if (copied.ok()) batch->next_ = count;
  return copied;
}

Outcome Copier::Launch(CopyBatch* batch, CUstream stream, size_t* descriptors) {
  uint64_t wanted = 0;
  for (size_t i = batch->next_; i < batch->pieces_.size(); ++i) {
    wanted += DescriptorsOf(batch->pieces_[i].bytes - (i == batch->next_ ? batch->next_offset_ : 0));
  }
  // All at once, or by halves of what there is in all: a batch of any size comes to its end.
  wanted = std::min<uint64_t>(wanted, descriptor_space_.bytes() / 2 / sizeof(CopyPiece));
  const auto room = descriptor_space_.Take(wanted * sizeof(CopyPiece));
  if (!room.has_value()) return {};
  size_t next = batch->next_;
  uint64_t offset = batch->next_offset_;
  auto* first = reinterpret_cast<CopyPiece*>(descriptor_memory_.data() + *room);
  for (uint64_t i = 0; i < wanted; ++i) {
    const CopyPiece& piece = batch->pieces_[next];
    const uint64_t bytes = std::min(kKernelPieceBytes, piece.bytes - offset);
    first[i] = {piece.to + offset, piece.from + offset, bytes};
    offset += bytes;
    if (offset == piece.bytes) {
      ++next;
      offset = 0;
    }
  }
  auto count = static_cast<unsigned>(wanted);
  void* parameters[] = {&first, &count};
  const unsigned blocks = std::min(kMaxBlocks, (count + kBlockWarps - 1) / kBlockWarps);
  const Outcome launched("cuLaunchKernel", driver_.LaunchKernel(kernel_, blocks, 1, 1, kBlockThreads, 1, 1, 0, stream,
                                                                parameters, nullptr));
  if (!launched.ok()) {
    descriptor_space_.Give(*room);
    return launched;
  }
  *descriptors = *room;
  batch->next_ = next;
  batch->next_offset_ = offset;
  return {};
}

Outcome Copier::Poll(std::vector<uint64_t>* finished) {
  if (under_way_.empty()) return {};
  const ContextScope scope(driver_, context_);
  Outcome outcome = scope.outcome();
  for (auto stream = under_way_.begin(); outcome.ok() && stream != under_way_.end();) {
    std::deque<Run>& runs = stream->second;
    while (!runs.empty()) {
      const CUresult result = driver_.EventQuery(runs.front().event);
      if (result == CUDA_ERROR_NOT_READY) break;
      outcome = Outcome("cuEventQuery", result);
      if (!outcome.ok()) break;
      finished->push_back(runs.front().ticket);
      GiveBack(runs.front());
      runs.pop_front();
    }
    stream = runs.empty() ? under_way_.erase(stream) : std::next(stream);
  }
  if (outcome.ok()) return outcome;
  // A context that has failed fails here too, at once; any other has come to rest by then.
  if (scope.outcome().ok()) driver_.CtxSynchronize();
  for (const auto& [stream, runs] : under_way_) {
    for (const Run& run : runs) GiveBack(run);
  }
  under_way_.clear();
  return outcome;
}

Outcome Copier::Record(CUevent event, CUstream stream) {
  const ContextScope scope(driver_, context_);
  if (!scope.outcome().ok()) return scope.outcome();
  if (Outcome free = CheckNotCaptured(stream); !free.ok()) return free;
  return {"cuEventRecord", driver_.EventRecord(event, stream)};
}

}  // namespace quarry::cuda
