// What a peer may say over UCX, and before that on the session, from arbitrary bytes: headers of
// messages, metadata of items, greetings. What is taken encodes to the same bytes again.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/transport/tcp/frame.h"
#include "common/transport/ucx/greeting.h"
#include "common/transport/ucx/message.h"
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

}  // namespace
}  // namespace quarry::transport::ucx

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  quarry::transport::ucx::ReadMessage(data, bytes);
  quarry::transport::ucx::ReadGreeting(data, bytes);
  return 0;
}
