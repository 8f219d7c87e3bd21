#include "common/transport/shm/message.h"

#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace quarry::transport::shm {
namespace {

static_assert(std::endian::native == std::endian::little, "headers lie in memory as they travel");

struct Header {
  uint8_t type;
  uint8_t flag;
  uint16_t zero;
  uint32_t item;
  uint64_t request;
  uint64_t values[3];
  uint32_t body_bytes;
  uint32_t zero2;
};
static_assert(sizeof(Header) == kHeaderBytes);

bool IsKnown(uint8_t type) {
  return (type >= static_cast<uint8_t>(MessageType::kChallenge) &&
          type <= static_cast<uint8_t>(MessageType::kWriting)) ||
         (type >= static_cast<uint8_t>(MessageType::kBoard) && type <= static_cast<uint8_t>(MessageType::kAbsent));
}

}  // namespace

void AppendMessage(const Message& message, std::string* out) {
  const Header header{static_cast<uint8_t>(message.type),
                      message.flag,
                      0,
                      message.id.item,
                      message.id.request,
                      {message.values[0], message.values[1], message.values[2]},
                      static_cast<uint32_t>(message.body.size()),
                      0};
  out->append(reinterpret_cast<const char*>(&header), sizeof header);
  out->append(message.body.data(), message.body.size());
}

absl::Status DecodeMessageHeader(const char* in, Message* message, size_t* body_bytes) {
  Header header;
  std::memcpy(&header, in, sizeof header);
  if (!IsKnown(header.type)) {
    return absl::InvalidArgumentError(absl::StrCat("message type: ", uint32_t{header.type}, " is none"));
  }
  if (header.zero != 0 || header.zero2 != 0) return absl::InvalidArgumentError("message header: reserved bytes not 0");
  if (header.body_bytes > kMaxBodyBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("message body_bytes: ", header.body_bytes, ", at most ", kMaxBodyBytes));
  }
  message->type = static_cast<MessageType>(header.type);
  message->flag = header.flag;
  message->id = {header.request, header.item};
  for (size_t i = 0; i < message->values.size(); ++i) message->values[i] = header.values[i];
  *body_bytes = header.body_bytes;
  return absl::OkStatus();
}

}  // namespace quarry::transport::shm
