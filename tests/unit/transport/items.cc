#include "tests/unit/transport/items.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace quarry::transport {

TestSlot::TestSlot(const Bytes& payload, uint64_t identity_seed) : TestSlot(payload.size()) {
  std::memcpy(memory.data(), payload.data(), payload.size());
  const Segment whole{memory.data(), payload.size(), 0, 1};
  SumSegments(absl::MakeConstSpan(&whole, 1), payload.size(), sums.data());
  root = RootSum(identity_seed, payload.size(), sums);
}

bool TestSlot::Holds(const Bytes& payload) const {
  return std::equal(payload.begin(), payload.end(), memory.bytes().begin(), memory.bytes().end());
}

TestTransfer::TestTransfer(Kind transfer_kind, ItemId item, TestSlot* slot) {
  kind = transfer_kind;
  id = item;
  data = slot->memory.data();
  bytes = payload_bytes = slot->memory.size();
  if (kind == Kind::kWrite) root = slot->root;
  sums = slot->sums.data();
}

void TestTransfer::WithRange(size_t range_offset, size_t range_bytes) {
  const std::byte* payload = data;
  const RangeEdges edges = EdgesOf({range_offset, range_bytes, payload_bytes});
  const size_t end = range_offset + range_bytes;
  const size_t first_end = std::min(end, (range_offset / kChunkBytes + 1) * kChunkBytes);
  const size_t last_begin = (end - 1) / kChunkBytes * kChunkBytes;
  if (edges.first_partial) edge_sums[0] = ChunkSum(payload + range_offset, first_end - range_offset);
  if (edges.last_partial) edge_sums[1] = ChunkSum(payload + last_begin, end - last_begin);
  data += range_offset;
  offset = range_offset;
  bytes = range_bytes;
}

void TestTransfer::Finish(TransferStatus status) {
  end_->status = status;
  end_->root = root;
  ++end_->finished;
  if (then_) then_(status);
}

uint32_t TestRequest::Add(Shape shape, size_t bytes, uint64_t identity_seed, bool checksum) {
  Buffer& buffer = buffers_.emplace_back(shape, bytes);
  buffer.item = {buffer.memory.segments(), bytes, checksum, identity_seed};
  return size() - 1;
}

void TestRequest::Lock() {
  for (Buffer& buffer : buffers_) buffer.memory.memory().Lock();
}

void TestRequest::Unlock() {
  for (Buffer& buffer : buffers_) buffer.memory.memory().Unlock();
}

const ExposedRequest::Item* TestRequest::item(uint32_t index) const {
  return index < size() ? &buffers_[index].item : nullptr;
}

void TestRequest::OnItemArrived(uint32_t index, size_t bytes) {
  buffers_[index].arrived_bytes = bytes;
  ++buffers_[index].arrived;
  if (then_) then_(index);
}

void TestRequest::OnItemSent(uint32_t index) {
  ++buffers_[index].sent;
  if (then_) then_(index);
}

void TestRequest::OnItemFailed(uint32_t index, TransferStatus status) {
  buffers_[index].failure = status;
  ++buffers_[index].failed;
  if (then_) then_(index);
}

}  // namespace quarry::transport
