// What the two ends of a shared-memory stream say to each other. Payload never travels on
// it: only where memory is, what has been moved, and its sums.
//
//   offset  bytes  header, little-endian
//        0      1  type
//        1      1  flag
//        2      2  0
//        4      4  item
//        8      8  request
//       16     24  three values
//       40      4  body_bytes, at most kMaxBodyBytes
//       44      4  0
#ifndef QUARRY_COMMON_TRANSPORT_SHM_MESSAGE_H_
#define QUARRY_COMMON_TRANSPORT_SHM_MESSAGE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/transport/tcp/frame.h"
#include "common/transport/transport.h"

namespace quarry::transport::shm {

inline constexpr size_t kHeaderBytes = 48;
inline constexpr size_t kMaxBodyBytes = tcp::kMaxMetaBytes;
inline constexpr size_t kNonceBytes = 32;

enum class MessageType : uint8_t {
  // Server to client. The first stream of a session begins with kChallenge, kBoard, kReady.
  kChallenge = 1,  // body: a nonce, to be put where kBoard says
  kReady,          // flag 1: the server can reach the client's memory; else body: why not
  kRegionReply,    // item: the region's key; flag 1: it can be used; else body: why not
  kSum,            // sum this item, and answer with kSummed or kAbsent
  kWritten,        // the item is in place; body: ItemMeta, or empty where the client wants none
  kWrongSize,      // what was to be written is not as long as the item
  kRead,           // the item has been read for the last time
  kReleased,       // the request was withdrawn while it was used, and is no more
  kWriting,        // values[0]: so many bytes of the item are in place; body: ItemMeta
  // Client to server.
  kBoard = 32,  // values[0]: where the nonce is; with two descriptors: gates, items
  kRegion,      // item: the region's key; flag: RegionKind; values: base, bytes, file offset; with a
                // descriptor unless it is a kProcess
  kUnregion,    // item: the region's key. It is used no more
  kSummed,      // values[0]: the root
  kAbsent,      // the item is not, or no longer, exposed
};

// How the server reaches a region.
enum class RegionKind : uint8_t {
  kMapped = 1,  // a memfd that cannot shrink: the server maps it
  kFile,        // another file in memory: by pwrite and pread
  kProcess,     // any memory: by process_vm_writev and process_vm_readv
};

struct Message {
  MessageType type = MessageType::kChallenge;
  uint8_t flag = 0;
  ItemId id;
  std::array<uint64_t, 3> values = {0, 0, 0};
  absl::string_view body;
};

void AppendMessage(const Message& message, std::string* out);
// Of the first kHeaderBytes; `body_bytes` gets the length of what follows. InvalidArgument
// names the field and the bound.
absl::Status DecodeMessageHeader(const char* in, Message* message, size_t* body_bytes);

}  // namespace quarry::transport::shm

#endif  // QUARRY_COMMON_TRANSPORT_SHM_MESSAGE_H_
