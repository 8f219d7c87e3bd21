// What a peer may say over UCX, and before that on the session, from arbitrary bytes: headers of
// messages, metadata of items, greetings, regions. What is taken encodes to the same bytes again.
// Where an item is said to lie, only the regions are reached.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "common/transport/tcp/frame.h"
#include "common/transport/ucx/greeting.h"
#include "common/transport/ucx/message.h"
#include "common/transport/ucx/remote_regions.h"
#include "tests/fuzz/input.h"

namespace quarry::transport::ucx {
namespace {

using fuzz::Require;

void ReadMessage(const uint8_t* data, size_t bytes) {
  const absl::Span<const std::byte> in(reinterpret_cast<const std::byte*>(data), bytes);
  Message message;
  absl::Span<const std::byte> rest;
  if (!DecodeMessage(in, &message, &rest).ok()) return;
  std::string again;
  EncodeMessage(message, &again);
  Require(again == std::string(reinterpret_cast<const char*>(data), kHeaderBytes));
  // As an item's landing reads it.
  std::vector<uint64_t> sums(rest.size() / sizeof(uint64_t));
  tcp::ItemMeta meta;
  if (!tcp::DecodeMeta(rest, sums.data(), &meta).ok()) return;
  tcp::EncodeMeta(meta, &again);
  Require(again == std::string(reinterpret_cast<const char*>(rest.data()), rest.size()));
}

void ReadGreeting(const uint8_t* data, size_t bytes) {
  const absl::string_view in(reinterpret_cast<const char*>(data), bytes);
  if (in.size() < kGreetingPrefixBytes) return;
  const auto length = GreetingBytes(in);
  if (!length.ok() || *length > in.size()) return;
  const auto greeting = DecodeGreeting(in.substr(0, *length));
  if (greeting.ok()) Require(EncodeGreeting(*greeting) == in.substr(0, *length));
}

void ReadRegion(const uint8_t* data, size_t bytes) {
  RegionClaim claim;
  if (!DecodeRegionClaim({reinterpret_cast<const std::byte*>(data), bytes}, &claim).ok()) return;
  Require(EncodeRegionClaim(claim) == std::string(reinterpret_cast<const char*>(data), bytes));
  RemoteRegions regions;
  if (!regions.Admit(1, claim).ok()) return;
  regions.Add(1, claim, nullptr);
  Require(!regions.Admit(1, claim).ok());
}

// The first byte is the item's length, in KiB.
void ReadPlace(const uint8_t* data, size_t bytes) {
  if (bytes == 0) return;
  const size_t item_bytes = size_t{data[0]} << 10;
  static const RegionClaim kRegions[] = {{1 << 20, 64 << 10, {}}, {UINT64_MAX - (100 << 10), 100 << 10, {}}};
  RemoteRegions regions;
  for (uint32_t key = 0; key < std::size(kRegions); ++key) regions.Add(key, kRegions[key], nullptr);
  std::vector<Descriptor> descriptors((bytes - 1) / sizeof(Descriptor));
  if (!descriptors.empty()) std::memcpy(descriptors.data(), data + 1, descriptors.size() * sizeof(Descriptor));
  const auto runs = regions.Find(descriptors, item_bytes);
  if (!runs.ok()) return;
  size_t total = 0;
  for (size_t i = 0; i < runs->size(); ++i) {
    const RemoteRun& run = (*runs)[i];
    const RegionClaim& region = kRegions[descriptors[i].region];
    for (uint32_t piece = 0; piece < run.count; ++piece) {
      const uint64_t at = run.address + piece * run.stride;
      Require(at >= region.base && run.length <= region.bytes && at - region.base <= region.bytes - run.length);
    }
    total += run.length * run.count;
  }
  Require(total == item_bytes);
}

}  // namespace
}  // namespace quarry::transport::ucx

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  quarry::transport::ucx::ReadMessage(data, bytes);
  quarry::transport::ucx::ReadGreeting(data, bytes);
  quarry::transport::ucx::ReadRegion(data, bytes);
  quarry::transport::ucx::ReadPlace(data, bytes);
  return 0;
}
