#include "common/transport/ucx/message.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/transport/tcp/frame.h"

namespace quarry::transport::ucx {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

constexpr MessageType kLastType = MessageType::kRegionReply;

struct MessageWire {
  uint64_t token;
  uint64_t request;
  uint32_t item;
  uint8_t type;
  uint8_t zeros[3];
  uint32_t trailing_bytes;
  uint32_t zero;
};
static_assert(sizeof(MessageWire) == kHeaderBytes);

}  // namespace

void EncodeMessage(const Message& message, std::string* out) {
  const MessageWire wire = {message.token,
                            message.id.request,
                            message.id.item,
                            static_cast<uint8_t>(message.type),
                            {},
                            message.trailing_bytes,
                            0};
  out->assign(reinterpret_cast<const char*>(&wire), sizeof wire);
}

absl::Status DecodeMessage(absl::Span<const std::byte> in, Message* message, absl::Span<const std::byte>* rest) {
  if (in.size() < kHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat("header: ", kHeaderBytes, " bytes or more, got ", in.size()));
  }
  MessageWire wire;
  std::memcpy(&wire, in.data(), sizeof wire);
  message->token = wire.token;
  if (wire.type < static_cast<uint8_t>(MessageType::kData) || wire.type > static_cast<uint8_t>(kLastType)) {
    return absl::InvalidArgumentError(
        absl::StrCat("type: 1 to ", static_cast<uint32_t>(kLastType), ", got ", wire.type));
  }
  if ((wire.zeros[0] | wire.zeros[1] | wire.zeros[2] | wire.zero) != 0) {
    return absl::InvalidArgumentError("header: what is reserved must be 0");
  }
  if (wire.trailing_bytes > tcp::kMaxMetaBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("trailing_bytes: at most ", tcp::kMaxMetaBytes, ", got ", wire.trailing_bytes));
  }
  message->id = {wire.request, wire.item};
  message->type = static_cast<MessageType>(wire.type);
  message->trailing_bytes = wire.trailing_bytes;
  *rest = in.subspan(kHeaderBytes);
  return absl::OkStatus();
}

std::string EncodeRegionClaim(const RegionClaim& claim) {
  const uint64_t fixed[] = {claim.base, claim.bytes};
  return std::string(reinterpret_cast<const char*>(fixed), sizeof fixed) + claim.packed;
}

absl::Status DecodeRegionClaim(absl::Span<const std::byte> in, RegionClaim* claim) {
  uint64_t fixed[2];
  if (in.size() <= sizeof fixed) {
    return absl::InvalidArgumentError(absl::StrCat("region: ", sizeof fixed, " bytes and a key, got ", in.size()));
  }
  std::memcpy(fixed, in.data(), sizeof fixed);
  claim->base = fixed[0];
  claim->bytes = fixed[1];
  claim->packed.assign(reinterpret_cast<const char*>(in.data()) + sizeof fixed, in.size() - sizeof fixed);
  return absl::OkStatus();
}

}  // namespace quarry::transport::ucx
