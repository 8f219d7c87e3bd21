#include "common/transport/shm/item_copy.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace quarry::transport::shm {
namespace {

constexpr size_t kMaxPieces = 256;  // of one call of a region

}  // namespace

ItemCopy::Found ItemCopy::Open(const Transfer& transfer) {
  entered_ = board_->Enter(transfer.id.request);
  if (!entered_.has_value()) return board_->elsewhere() ? Found::kByStream : Found::kNotExposed;
  transfer_ = &transfer;
  runs_.clear();
  run_ = run_moved_ = moved_ = 0;
  status_ = board_->ReadItem(*entered_, transfer.id.item, &record_);
  if (absl::IsNotFound(status_)) return Found::kNotExposed;
  if (!status_.ok()) return Found::kMalformed;
  if ((record_.flags & ItemRecord::kByStream) != 0) return Found::kByStream;
  if (record_.bytes != transfer.bytes) return Found::kWrongSize;
  std::vector<Descriptor> descriptors;
  if (status_ = board_->ReadDescriptors(record_, &descriptors); !status_.ok()) return Found::kMalformed;
  if (const Found found = BuildRuns(descriptors); found != Found::kHere) return found;
  cursor_ = SegmentCursor(runs_[0].segments);
  if (transfer.kind == Transfer::Kind::kRead) summer_.Start(kChunkBytes, transfer.sums);
  return Found::kHere;
}

ItemCopy::Found ItemCopy::BuildRuns(const std::vector<Descriptor>& descriptors) {
  size_t total = 0;
  for (const Descriptor& descriptor : descriptors) {
    if (runs_.empty() || runs_.back().region->key() != descriptor.region) {
      auto region = regions_->Find(descriptor.region);
      if (region == nullptr) return Found::kRegionGone;
      runs_.push_back({std::move(region), {}, 0});
    }
    Run& run = runs_.back();
    uint64_t bytes = 0;
    status_ = CheckInside(descriptor, run.region->bytes(), &bytes);
    if (!status_.ok()) return Found::kMalformed;
    if (bytes > transfer_->bytes - total) {
      status_ = absl::InvalidArgumentError("descriptors: more bytes than the item has");
      return Found::kMalformed;
    }
    run.segments.push_back(
        {run.region->base() + descriptor.offset, descriptor.length, descriptor.stride, descriptor.count});
    run.bytes += bytes;
    total += bytes;
  }
  if (total == transfer_->bytes) return Found::kHere;
  status_ = absl::InvalidArgumentError("descriptors: fewer bytes than the item has");
  return Found::kMalformed;
}

ItemCopy::Progress ItemCopy::Step(size_t bytes) {
  if (board_->Withdrawn(*entered_)) return Progress::kTakenBack;
  Run& run = runs_[run_];
  Gate gate = board_->region_gate(run.region->key());
  if (!gate.Enter(run.region->key())) return Progress::kTakenBack;
  const Progress progress = StepInRun(run, std::min(bytes, run.bytes - run_moved_));
  gate.Leave();
  if (progress != Progress::kMore) return progress;
  if (run_moved_ == run.bytes) {
    run_moved_ = 0;
    if (++run_ < runs_.size()) cursor_ = SegmentCursor(runs_[run_].segments);
  }
  if (moved_ < transfer_->bytes) return Progress::kMore;
  if (transfer_->kind == Transfer::Kind::kRead) summer_.Finish();
  return Progress::kDone;
}

ItemCopy::Progress ItemCopy::StepInRun(Run& run, size_t bytes) {
  const bool write = transfer_->kind == Transfer::Kind::kWrite;
  for (size_t left = bytes; left > 0;) {
    iovec pieces[kMaxPieces];
    size_t covered = 0;
    const size_t count = cursor_.Peek(pieces, kMaxPieces, left, &covered);
    const auto span = absl::MakeConstSpan(pieces, count);
    std::byte* here = transfer_->data + moved_;
    status_ = write ? run.region->CopyTo(span, here) : run.region->CopyFrom(span, here, &summer_);
    if (!status_.ok()) return Progress::kBroken;
    cursor_.Advance(covered);
    moved_ += covered;
    run_moved_ += covered;
    left -= covered;
  }
  return Progress::kMore;
}

bool ItemCopy::Close() {
  if (!entered_.has_value()) return false;
  const bool told = board_->Leave(*entered_);
  entered_.reset();
  runs_.clear();
  return told;
}

}  // namespace quarry::transport::shm
