// The transport seam: how the bytes of items move between a node's slots and a client's
// buffers. The upper layers (server/session, client) know only this file.
//
// An item is one shard of one block in one request; ItemId names it on both ends. The
// server starts every movement: Write moves a slot into the client's item (get), Read
// moves the client's item into a slot (put). The client only exposes its buffers for as
// long as a request lasts. What moves when is decided above (server/scheduler): a channel
// starts what it is given, in order.
//
// Ends of an item:
//   - the server end calls Transfer::Finish exactly once for every Start, also when the
//     channel closes or is destroyed;
//   - the client end reports OnItemArrived / OnItemSent / OnItemFailed at most once per
//     exposed item; when the channel breaks, only on_closed (registry.h) says so.
#ifndef QUARRY_COMMON_TRANSPORT_TRANSPORT_H_
#define QUARRY_COMMON_TRANSPORT_TRANSPORT_H_

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "quarry/segments.h"

namespace quarry {
class EventLoop;
}

namespace quarry::transport {

struct ItemId {
  uint64_t request = 0;
  uint32_t item = 0;
  friend bool operator==(const ItemId&, const ItemId&) = default;
};
struct ItemIdHash {
  size_t operator()(const ItemId& id) const { return id.request * 0x9E3779B97F4A7C15ull + id.item; }
};

enum class TransferStatus : uint8_t {
  kOk,         // the bytes were handed over in full (write), or landed in full (read)
  kCancelled,  // Cancel, the item's deadline, or the client abandoned the request
  kClosed,     // the channel closed
  kChecksum,   // the bytes that landed are not those that were summed
  kWrongSize,  // the item is not as long as the buffer for it
};

enum class Carrier : uint8_t { kTcp, kShm, kUcx };

// ---------------------------------------------------------------- server end

// One movement between a slot and a client's item. The server subclasses it to keep the
// slot referenced; the channel owns it from Start to Finish.
class Transfer {
 public:
  virtual ~Transfer() = default;
  // Called once, on a thread of the channel; must not block. The object is destroyed
  // right after.
  virtual void Finish(TransferStatus status) = 0;
  // Called once on a thread of the channel before anything moves, for work that should not
  // be done earlier or elsewhere. False: nothing moves, and it is finished with kChecksum.
  virtual bool Prepare() { return true; }

  enum class Kind : uint8_t { kWrite, kRead };

  Kind kind = Kind::kWrite;
  ItemId id;
  std::byte* data = nullptr;  // the range's first byte in the slot
  size_t bytes = 0;           // of the range
  // Where the range starts in the payload, and the payload's size: what the peer needs to
  // verify. A read always covers the whole payload.
  size_t offset = 0;
  size_t payload_bytes = 0;
  // Write: the sums that travel with the range (see ItemSums). Read: where the sums of
  // the whole payload are put, ChunkCount(payload_bytes) of them, verified against the
  // client's when it sent some, computed on receipt otherwise.
  uint64_t root = 0;
  uint64_t* sums = nullptr;
  // Write of a range that does not start or end at a chunk boundary: sums over just the
  // bytes of the first and the last touched chunk that are in the range.
  uint64_t edge_sums[2] = {0, 0};
  int64_t deadline_ns = 0;  // by Clock::Real(); 0: none. Not started after it.
  // Set by the channel: how it moved, or was about to move.
  Carrier carrier = Carrier::kTcp;
};

// The server's end towards one session. Thread-safe.
class ServerChannel {
 public:
  // Closes.
  virtual ~ServerChannel() = default;
  // Finishes the transfer with kClosed when the channel is closed already.
  virtual void Start(std::unique_ptr<Transfer> transfer) = 0;
  // Ends the request's transfers as soon as may be; each is finished, soon.
  virtual void Cancel(uint64_t request) = 0;
  // Every transfer that was started is finished, with kClosed, soon: on the loops' threads.
  virtual void Close() = 0;
  // A connected data stream that has joined the session; the channel owns `fd`. False (and
  // the fd closed) where the transport uses none or has enough.
  virtual bool AddStream(int fd, EventLoop* loop) = 0;
  // The same for a connection from within the host on which no payload travels: for transports
  // that reach the client's memory. `first`: the one on which both ends say what they share.
  virtual bool AddSharedStream(int fd, EventLoop*, bool /*first*/) {
    close(fd);
    return false;
  }
  // The same for a connection on which the ends of UCX greet each other.
  virtual bool AddUcxStream(int fd, EventLoop*) {
    close(fd);
    return false;
  }
  virtual const char* transport_name() const = 0;
};

// ---------------------------------------------------------------- client end

// What a client exposes for one request: a buffer for each item. Implemented by the
// client's request state; kept alive by shared_ptr until released. Methods are called on
// a thread of the channel and must not block.
class ExposedRequest {
 public:
  virtual ~ExposedRequest() = default;

  struct Item {
    absl::Span<const Segment> segments;  // validated; outlives the request
    size_t bytes = 0;                    // TotalBytes(segments)
    // Get: verify sums on arrival. Put: compute sums and send them.
    bool checksum = true;
    uint64_t identity_seed = 0;
  };
  // nullptr: no such item (the peer is wrong, and the channel is closed).
  virtual const Item* item(uint32_t index) const = 0;

  // Get: all bytes are in place and, where asked for, verified.
  virtual void OnItemArrived(uint32_t index, size_t bytes) = 0;
  // Put: the source has been read for the last time.
  virtual void OnItemSent(uint32_t index) = 0;
  // Get: what arrived fails its sums (kChecksum), or is not as long as the item
  // (kWrongSize).
  virtual void OnItemFailed(uint32_t index, TransferStatus status) = 0;
};

enum class Release : uint8_t {
  kReleased,  // nothing touches the buffers any more
  kHeld,      // a read or write may be in flight; the callback follows when it has ended
};

// The client's end towards one node. Thread-safe.
class ClientChannel {
 public:
  virtual ~ClientChannel() = default;
  // From now on the peer may read or write the request's items. Before the request's
  // message is sent.
  virtual void Expose(uint64_t request, std::shared_ptr<ExposedRequest> exposed) = 0;
  // The peer must not touch the request's items any more. kReleased: it never will; a
  // callback of the request that was running on another thread may still end. kHeld:
  // `released` is called once, on a thread of the channel, when that holds.
  virtual Release Withdraw(uint64_t request, std::function<void()> released) = 0;
  // Memory in which items may lie, for transports by which the server reaches it; blocks until
  // the server has answered. Not OK says why it cannot, in which case items in it still move, by
  // other ways. Ranges are those of the client: sorted out, disjoint.
  virtual absl::Status RegisterMemory(MemoryRange) { return absl::OkStatus(); }
  // The server does not touch it any more when this returns.
  virtual void UnregisterMemory(MemoryRange) {}
  virtual const char* transport_name() const = 0;
};

}  // namespace quarry::transport

#endif  // QUARRY_COMMON_TRANSPORT_TRANSPORT_H_
