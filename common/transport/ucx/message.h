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
//
// Where the session moves items by RMA the server asks about each of them, and the client, if all of
// it lies in memory that it has registered, answers where: kOffer or kPull, then kPlace. The item is
// the server's to touch until it says kWritten or kReleased, which it does for every kPlace, when
// that has ended at both ends.
// kPlace carries Descriptors as its data, and metadata as kData does: of a put's item its sums.
// kWritten carries the metadata of the item that is now in place, and no data else.
// A client registers memory by kRegion: `item` is the key; behind the header stand the address
// (8 bytes), the length (8 bytes) and the key of UCX. kRegionReply says behind the header why not, or
// nothing.
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
// Of one item. What lies in more pieces moves as messages do.
inline constexpr size_t kMaxPlaceDescriptors = 4096;
inline constexpr uint64_t kMaxPlacePieces = 16384;
// Of one session, at a time.
inline constexpr size_t kMaxRegions = 4096;

enum class MessageType : uint8_t {
  kData = 1,
  kPull,         // server to client: send this item
  kAbort,        // client to server: a pulled item will not come, or the offered one will not be taken
  kOffer,        // server to client: where is this item to go?
  kPlace,        // client to server: there, or from there
  kElsewhere,    // client to server: not to registered memory; send it
  kWritten,      // server to client: it is in place
  kReleased,     // server to client: it is touched no more; of a get's item: it was not written
  kRegion,       // client to server
  kUnregion,     // client to server: nothing of it will be placed any more
  kRegionReply,  // server to client
};

struct Message {
  uint64_t token = 0;
  ItemId id;
  MessageType type = MessageType::kData;
  uint32_t trailing_bytes = 0;
};

// A range of the client's memory, as it says: the server believes none of it.
struct RegionClaim {
  uint64_t base = 0;  // in the client
  uint64_t bytes = 0;
  std::string packed;  // its key, of UCX
};

// Replaces `out`.
void EncodeMessage(const Message& message, std::string* out);
// Of a whole header; `rest` gets what stands behind it. InvalidArgument names the field; the token
// is there all the same, unless the header is too short for one.
absl::Status DecodeMessage(absl::Span<const std::byte> in, Message* message, absl::Span<const std::byte>* rest);

// What stands behind the header of kRegion.
std::string EncodeRegionClaim(const RegionClaim& claim);
// InvalidArgument: it is too short.
absl::Status DecodeRegionClaim(absl::Span<const std::byte> in, RegionClaim* claim);

}  // namespace quarry::transport::ucx

#endif  // QUARRY_COMMON_TRANSPORT_UCX_MESSAGE_H_
