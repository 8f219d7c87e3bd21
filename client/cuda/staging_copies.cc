// Copies between the ring and GPU memory.
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cuda/staging.h"

namespace quarry {
namespace {

uint64_t AddressOf(const std::byte* byte) { return reinterpret_cast<uint64_t>(byte); }

}  // namespace

CUstream Staging::StreamOf(const StagedOperation& operation) {
  if (operation.request().stream != nullptr) return static_cast<CUstream>(operation.request().stream);
  const auto direction = operation.puts() ? cuda::Direction::kFromDevice : cuda::Direction::kToDevice;
  return GpuOfOperation(operation).copier->own_stream(direction);
}

void Staging::AddCopy(const PartPtr& part, std::vector<size_t> items) {
  const OperationPtr& operation = part->operation;
  auto copy = std::make_shared<Copy>();
  copy->part = part;
  copy->stream = StreamOf(*operation);
  const auto direction = operation->puts() ? cuda::Direction::kFromDevice : cuda::Direction::kToDevice;
  for (const size_t i : items) {
    uint64_t host = AddressOf(ring_.base() + part->offsets[i]);
    for (const Segment& segment : operation->request().items[part->items[i]].segments) {
      copy->batch.Add(direction, AddressOf(segment.base), host, segment.length, segment.stride, segment.count);
      host += segment.length * segment.count;
    }
  }
  copy->items = std::move(items);
  ++part->copies;
  ++operation->copies;
  GpuOfOperation(*operation).waiting.push_back(std::move(copy));
}

void Staging::CopyLanded() {
  for (const uint64_t number : std::exchange(landed_parts_, {})) {
    const auto part = parts_.find(number);
    if (part == parts_.end() || part->second->operation->done()) continue;
    AddCopy(part->second, std::exchange(part->second->landed, {}));
  }
}

void Staging::QueueCopies(Gpu* gpu) {
  while (!gpu->waiting.empty()) {
    const CopyPtr copy = gpu->waiting.front();
    uint64_t ticket = 0;
    const cuda::Outcome queued = gpu->copier->Queue(&copy->batch, copy->stream, &ticket);
    if (!queued.ok()) {
      Finish(copy->part->operation, CudaError(queued));  // which drops it
      continue;
    }
    if (ticket == 0) return;  // until others have run
    gpu->running.emplace(ticket, copy);
    ++copy->tickets;
    if (!copy->batch.queued()) continue;
    gpu->waiting.pop_front();
    OnQueued(copy);
  }
}

void Staging::OnQueued(const CopyPtr& copy) {
  const OperationPtr& operation = copy->part->operation;
  // On the caller's own stream, what is queued is as good as done for whatever comes behind it.
  if (operation->puts() || operation->request().stream == nullptr) return;
  for (const size_t i : copy->items) {
    const uint32_t item = copy->part->items[i];
    operation->EndItem(item, {}, operation->item_bytes(item));
  }
  FinishIfComplete(operation);
}

bool Staging::PollCopies(Gpu* gpu) {
  if (gpu->running.empty()) return false;
  std::vector<uint64_t> finished;
  const cuda::Outcome outcome = gpu->copier->Poll(&finished);
  for (const uint64_t ticket : finished) {
    const auto node = gpu->running.extract(ticket);
    const CopyPtr& copy = node.mapped();
    --copy->tickets;
    if (copy->tickets == 0 && (copy->dropped || copy->batch.queued())) EndCopy(copy);
  }
  if (!outcome.ok()) OnGpuFailed(gpu, CudaError(outcome));
  return !finished.empty() || !outcome.ok();
}

void Staging::OnGpuFailed(Gpu* gpu, const absl::Status& why) {
  int number = 0;
  {
    std::lock_guard lock(mutex_);
    gpu->failed = why;
    for (const auto& [known, entry] : gpus_) {
      if (entry.get() == gpu) number = known;
    }
  }
  std::vector<OperationPtr> ended;
  for (const auto& [id, operation] : operations_) {
    if (operation->request().gpu == number) ended.push_back(operation);
  }
  const auto running = std::exchange(gpu->running, {});
  for (const auto& [ticket, copy] : running) {
    copy->dropped = true;
    --copy->tickets;
  }
  for (const OperationPtr& operation : ended) Finish(operation, why);
  // None of them runs any more.
  for (const auto& [ticket, copy] : running) {
    if (copy->part != nullptr && copy->tickets == 0) EndCopy(copy);
  }
}

void Staging::DropCopies(const OperationPtr& operation) {
  Gpu& gpu = GpuOfOperation(*operation);
  std::deque<CopyPtr> dropped;
  std::deque<CopyPtr> others;
  for (CopyPtr& copy : gpu.waiting) (copy->part->operation == operation ? dropped : others).push_back(std::move(copy));
  gpu.waiting = std::move(others);
  for (const auto& [ticket, copy] : gpu.running) {
    if (copy->part->operation == operation) copy->dropped = true;
  }
  for (const CopyPtr& copy : dropped) {
    copy->dropped = true;
    if (copy->tickets > 0) continue;
    --std::exchange(copy->part, nullptr)->copies;
    --operation->copies;
  }
}

void Staging::EndCopy(const CopyPtr& copy) {
  const PartPtr part = std::exchange(copy->part, nullptr);
  const OperationPtr operation = part->operation;
  --part->copies;
  --operation->copies;
  if (operation->done()) {
    if (operation->held() && operation->copies == 0) operation->Release();
  } else if (operation->puts()) {
    BeginPut(part);
  } else if (operation->request().stream == nullptr) {
    for (const size_t i : copy->items) {
      operation->EndItem(part->items[i], {}, operation->item_bytes(part->items[i]));
    }
    FinishIfComplete(operation);
  }
  FreeIfOver(part);
}

}  // namespace quarry
