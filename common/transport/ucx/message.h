// What the ends say to each other by UCX active messages. The header of each:
//
//   offset  bytes  little-endian
//        0      8  token: what the receiver chose for messages of this session
//        8      8  request
//       16      4  item
//       20      1  type
//       21      3  0
//       24      4  trailing_bytes
//       28      4  0
//
// kData carries an item, whole, as its data. Its metadata (tcp::ItemMeta) stands behind the header
// or, where that is too long, behind the item: the last trailing_bytes of the data.
// kPull and kAbort, as of the TCP transport, have no data.
#ifndef QUARRY_COMMON_TRANSPORT_UCX_MESSAGE_H_
#define QUARRY_COMMON_TRANSPORT_UCX_MESSAGE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/transport/transport.h"

namespace quarry::transport::ucx {

inline constexpr unsigned kActiveMessageId = 1;
inline constexpr size_t kHeaderBytes = 32;
// UCX has room for nearly 8 KiB of header on the lanes that it was tried on.
inline constexpr size_t kMaxMetaInHeader = 4 << 10;

enum class MessageType : uint8_t {
  kData = 1,
  kPull,   // server to client: send this item
  kAbort,  // client to server: a pulled item will not come
};

struct Message {
  uint64_t token = 0;
  ItemId id;
  MessageType type = MessageType::kData;
  uint32_t trailing_bytes = 0;
};

// Replaces `out`.
void EncodeMessage(const Message& message, std::string* out);
// Of a whole header; `rest` gets what stands behind it. InvalidArgument names the field; the token
// is there all the same, unless the header is too short for one.
absl::Status DecodeMessage(absl::Span<const std::byte> in, Message* message, absl::Span<const std::byte>* rest);

}  // namespace quarry::transport::ucx

#endif  // QUARRY_COMMON_TRANSPORT_UCX_MESSAGE_H_
