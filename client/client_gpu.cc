// GPU memory: how it is registered, and how operations on it begin.
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/client_impl.h"
#include "common/clock.h"

namespace quarry {
namespace {

// Copies what the views point to behind what `texts` has, within its capacity, so that views into it stay.
absl::string_view Keep(absl::string_view text, std::string* texts) {
  const size_t begin = texts->size();
  texts->append(text.data(), text.size());
  return absl::string_view(*texts).substr(begin);
}

}  // namespace

std::shared_ptr<GpuTransfers> ClientImpl::gpu_transfers() const {
  std::lock_guard lock(mutex_);
  return gpu_transfers_;
}

absl::Status ClientImpl::AdmitGpuMemory(MemoryRange range, int gpu) {
  std::lock_guard start_lock(gpu_start_mutex_);
  std::shared_ptr<GpuTransfers> transfers = gpu_transfers();
  if (transfers == nullptr) {
    auto started = StartGpuTransfers(this, options_.gpu_staging_bytes, counters_);
    if (!started.ok()) return started.status();
    transfers = *std::move(started);
    std::lock_guard lock(mutex_);
    if (stopping_) return why_disconnected_;
    gpu_transfers_ = transfers;
  }
  return transfers->Admit(range, gpu);
}

absl::StatusOr<std::unique_ptr<GpuRequest>> ClientImpl::StagedItems(const Namespace& ns,
                                                                    std::vector<Item>* items) const {
  if (gpu_ranges_.empty()) return nullptr;
  GpuFinder finder(gpu_ranges_);
  size_t text_bytes = 0;
  for (size_t i = 0; i < items->size(); ++i) {
    const Item& item = (*items)[i];
    absl::Status status = finder.Add(item.segments, [i] { return absl::StrCat("items[", i, "]"); });
    if (!status.ok()) return status;
    text_bytes += item.hash.size() + item.parent.size();
  }
  if (!finder.gpu().has_value()) return nullptr;
  auto request = std::make_unique<GpuRequest>();
  request->ns = ns;
  request->gpu = *finder.gpu();
  request->texts.reserve(text_bytes);
  request->items = std::move(*items);
  for (Item& item : request->items) {
    item.hash = Keep(item.hash, &request->texts);
    item.parent = Keep(item.parent, &request->texts);
  }
  return request;
}

absl::StatusOr<std::unique_ptr<GpuRequest>> ClientImpl::StagedFetch(
    const Namespace& ns, absl::Span<const Chain> chains, uint32_t shard,
    std::vector<std::vector<SegmentList>>* destinations) const {
  if (gpu_ranges_.empty()) return nullptr;
  GpuFinder finder(gpu_ranges_);
  size_t text_bytes = 0;
  for (size_t c = 0; c < chains.size(); ++c) {
    text_bytes += chains[c].hashes.bytes().size();
    for (size_t k = 0; k < (*destinations)[c].size(); ++k) {
      absl::Status status =
          finder.Add((*destinations)[c][k], [c, k] { return absl::StrCat("destinations[", c, "][", k, "]"); });
      if (!status.ok()) return status;
    }
  }
  if (!finder.gpu().has_value()) return nullptr;
  auto request = std::make_unique<GpuRequest>();
  request->kind = GpuRequest::Kind::kFetch;
  request->ns = ns;
  request->gpu = *finder.gpu();
  request->texts.reserve(text_bytes);
  for (size_t c = 0; c < chains.size(); ++c) {
    Chain chain = chains[c];
    chain.hashes = HashSpan(Keep(chain.hashes.bytes(), &request->texts), chain.hashes.hash_bytes());
    for (size_t k = 0; k < (*destinations)[c].size(); ++k) {
      Item& item = request->items.emplace_back();
      item.group = chain.group;
      item.shard = shard;
      item.hash = chain.hashes[k];
      item.segments = std::move((*destinations)[c][k]);
    }
    request->chains.push_back(chain);
  }
  return request;
}

absl::StatusOr<OperationId> ClientImpl::BeginStaged(std::unique_ptr<GpuRequest> request, uint32_t deadline_ms,
                                                    Queue queue, uint64_t user_data) {
  const auto transfers = gpu_transfers();
  if (transfers == nullptr) return absl::CancelledError("the client is closed");
  const OperationId id = next_request_.fetch_add(1, std::memory_order_relaxed);
  request->id = id;
  request->user_data = user_data;
  request->deadline_ns =
      Clock::Real()->NowNs() + (deadline_ms == 0 ? options_.default_deadline_ms : deadline_ms) * kNsPerMs;
  request->queue = std::move(queue);
  if (absl::Status status = transfers->Begin(std::move(request)); !status.ok()) return status;
  return id;
}

}  // namespace quarry
