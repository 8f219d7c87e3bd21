#include "common/transport/ucx/registered_memory.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

namespace quarry::transport::ucx {
namespace {

// For the server's answer about a region.
constexpr auto kAnswerPatience = std::chrono::seconds(30);
// For the end of what is on its way to memory that is taken back.
constexpr auto kUsePatience = std::chrono::seconds(1);

uint64_t PiecesOf(absl::Span<const Segment> segments) {
  uint64_t pieces = 0;
  for (const Segment& segment : segments) pieces += segment.count;
  return pieces;
}

}  // namespace

RegisteredMemory::RegisteredMemory(std::shared_ptr<Context> context, EventLoop* loop, Tell tell,
                                   std::function<void()> revoke)
    : context_(std::move(context)), loop_(loop), tell_(std::move(tell)), revoke_(std::move(revoke)) {}

absl::StatusOr<std::string> RegisteredMemory::Pack(ucp_mem_h mapped) const {
  void* buffer = nullptr;
  size_t bytes = 0;
  const ucs_status_t status = context_->api().ucp_rkey_pack(context_->handle(), mapped, &buffer, &bytes);
  if (status != UCS_OK) return UcxStatus(context_->api(), status, "packing a key");
  std::string packed(static_cast<const char*>(buffer), bytes);
  context_->api().ucp_rkey_buffer_release(buffer);
  return packed;
}

absl::Status RegisteredMemory::Add(MemoryRange range) {
  if (loop_->InLoop()) return absl::FailedPreconditionError("memory is not registered from a callback");
  {
    std::lock_guard lock(mutex_);
    for (const RegisteredRange& known : ranges_) {
      if (known.range.base == range.base) return absl::OkStatus();
    }
    if (regions_.size() >= kMaxRegions) {
      return absl::ResourceExhaustedError(absl::StrCat("at most ", kMaxRegions, " regions"));
    }
  }
  auto mapped = context_->Map(range);
  if (!mapped.ok()) return mapped.status();
  auto packed = Pack(*mapped);
  std::unique_lock lock(mutex_);
  if (!packed.ok() || ended_) {
    context_->Unmap(*mapped);
    return ended_ ? absl::UnavailableError("the session has ended") : packed.status();
  }
  const uint32_t key = next_key_++;
  regions_[key].mapped = *mapped;
  lock.unlock();
  const RegionClaim claim{reinterpret_cast<uint64_t>(range.base), range.bytes, *packed};
  loop_->Run([&] { tell_(MessageType::kRegion, key, EncodeRegionClaim(claim)); });
  lock.lock();
  const auto region = regions_.find(key);  // until End, nobody else removes it
  changed_.wait_for(lock, kAnswerPatience, [&] { return ended_ || region->second.reply.has_value(); });
  if (ended_) return absl::UnavailableError("the session has ended");
  const absl::Status status = region->second.reply.value_or(absl::UnavailableError("the server does not answer"));
  if (status.ok()) {
    InsertRange({range, key}, &ranges_);
    return status;
  }
  lock.unlock();
  Drop(key);
  return status;
}

void RegisteredMemory::Remove(MemoryRange range) {
  std::unique_lock lock(mutex_);
  const auto known = std::find_if(ranges_.begin(), ranges_.end(),
                                  [range](const RegisteredRange& one) { return one.range.base == range.base; });
  if (known == ranges_.end()) return;
  const uint32_t key = known->key;
  ranges_.erase(known);
  const auto unused = [&] { return ended_ || regions_.find(key)->second.uses == 0; };
  if (!loop_->InLoop() && !changed_.wait_for(lock, kUsePatience, unused)) {
    lock.unlock();
    revoke_();
    lock.lock();
    changed_.wait(lock, [this] { return ended_; });
  }
  if (ended_) return;
  const bool used = !unused();
  lock.unlock();
  Drop(key);
  if (used) revoke_();
}

void RegisteredMemory::Drop(uint32_t key) {
  std::unique_lock lock(mutex_);
  const auto dropped = regions_.extract(key);
  lock.unlock();
  if (dropped.empty()) return;  // it has ended
  loop_->Run([&] { tell_(MessageType::kUnregion, key, ""); });
  context_->Unmap(dropped.mapped().mapped);
}

bool RegisteredMemory::BeginUse(absl::Span<const Segment> segments, std::vector<Descriptor>* descriptors) {
  if (PiecesOf(segments) > kMaxPlacePieces) return false;
  std::lock_guard lock(mutex_);
  if (!Describer(ranges_).Describe(segments, kMaxPlaceDescriptors, descriptors)) return false;
  for (const Descriptor& descriptor : *descriptors) ++regions_.find(descriptor.region)->second.uses;
  return true;
}

void RegisteredMemory::EndUse(absl::Span<const Descriptor> descriptors) {
  std::lock_guard lock(mutex_);
  for (const Descriptor& descriptor : descriptors) {
    const auto region = regions_.find(descriptor.region);
    if (region != regions_.end()) --region->second.uses;  // else it was dropped in use
  }
  changed_.notify_all();
}

void RegisteredMemory::OnReply(uint32_t key, absl::Status status) {
  std::lock_guard lock(mutex_);
  const auto region = regions_.find(key);
  if (region == regions_.end()) return;  // no longer waited for
  region->second.reply = std::move(status);
  changed_.notify_all();
}

void RegisteredMemory::End() {
  std::map<uint32_t, Region> regions;
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
    ranges_.clear();
    regions.swap(regions_);
  }
  for (const auto& [key, region] : regions) context_->Unmap(region.mapped);
  changed_.notify_all();
}

}  // namespace quarry::transport::ucx
