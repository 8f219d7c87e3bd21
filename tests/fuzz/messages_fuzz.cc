// Session messages from arbitrary bytes: what decodes, encodes to bytes that decode to
// the same again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "common/session/messages.h"

namespace quarry::wire {
namespace {

absl::StatusOr<ClientMessage> Decode(const ClientMessage&, absl::string_view bytes) {
  return DecodeClientMessage(bytes);
}
absl::StatusOr<ServerMessage> Decode(const ServerMessage&, absl::string_view bytes) {
  return DecodeServerMessage(bytes);
}

template <typename Message>
std::string Encode(const Message& message) {
  std::string framed;
  AppendFramed(message, &framed);
  return framed.substr(sizeof(uint32_t));
}

// The encoding leaves nothing out and has one form, so equal bytes are equal messages.
template <typename Message>
void CheckRoundTrip(absl::string_view bytes) {
  const auto message = Decode(Message{}, bytes);
  if (!message.ok()) return;
  const std::string encoded = Encode(*message);
  const auto again = Decode(Message{}, encoded);
  if (!again.ok() || again->body.index() != message->body.index() || Encode(*again) != encoded) std::abort();
}

}  // namespace
}  // namespace quarry::wire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  quarry::wire::CheckRoundTrip<quarry::wire::ClientMessage>(bytes);
  quarry::wire::CheckRoundTrip<quarry::wire::ServerMessage>(bytes);
  return 0;
}
