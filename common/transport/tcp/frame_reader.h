// Reads a data stream: lands payload straight in the item's segments, one readv for the
// rest of a frame and the next header, and checks sums on the way.
#ifndef QUARRY_COMMON_TRANSPORT_TCP_FRAME_READER_H_
#define QUARRY_COMMON_TRANSPORT_TCP_FRAME_READER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "common/transport/tcp/frame.h"

namespace quarry::transport::tcp {

// Where an item lands.
struct Landing {
  absl::Span<const Segment> segments;
  size_t bytes = 0;      // TotalBytes(segments); the range must be exactly as long
  bool checksum = true;  // sum what lands, and compare with what the sender summed
  // Where computed sums go, ChunkCount(bytes) of them: the range must be a whole payload.
  // nullptr: nowhere, and any range will do.
  uint64_t* sums = nullptr;
  std::shared_ptr<void> owner;  // keeps the segments alive
};

// What the stream's end does with frames. Called on the loop's thread.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // An item begins. kDiscard: its bytes are thrown away. kRefuse: the peer may not send it,
  // and the stream ends.
  enum class Find : uint8_t { kLand, kDiscard, kRefuse };
  virtual Find FindLanding(ItemId id, Landing* landing) = 0;
  // All bytes are in place. `intact`: no sum differed. Not called once abandoned.
  virtual void OnReceived(ItemId id, const ItemMeta& meta, bool intact) = 0;
  // The item will not be received: its size is not the landing's, or (not wrong_size) the
  // sender went on to another one.
  virtual void OnBroken(ItemId id, bool wrong_size) = 0;
  // Not OK: the peer may not send this, and the stream ends.
  virtual absl::Status OnPull(ItemId id) = 0;
  virtual absl::Status OnAbort(ItemId id) = 0;
};

class FrameReader {
 public:
  explicit FrameReader(FrameSink* sink) : sink_(sink), sums_(ChunkCount(kMaxShardBytes)) {}

  // Reads until nothing is there or about `budget` bytes have come. Not OK: the stream is
  // finished (Unavailable: closed by the peer; InvalidArgument: not our protocol).
  absl::Status Read(int fd, size_t budget);

  // What is still to come of the request's item, if it is the current one, is thrown away.
  void Abandon(uint64_t request);

 private:
  enum class State : uint8_t { kHeader, kMeta, kPayload };

  size_t BuildIov(iovec* iov, size_t* wanted);
  absl::Status Consume(size_t bytes);
  absl::Status OnHeader();
  absl::Status OnFrameBegin();
  absl::Status OnMeta();
  void OnPayload(size_t bytes);
  void EndItem();
  void BreakItem(bool wrong_size);

  FrameSink* const sink_;
  State state_ = State::kHeader;
  std::array<std::byte, kHeaderBytes> header_bytes_;
  size_t header_got_ = 0;
  FrameHeader header_;
  std::array<std::byte, kMaxMetaBytes> meta_bytes_;
  size_t meta_got_ = 0;
  size_t payload_got_ = 0;  // of the frame

  // The item being received.
  bool in_item_ = false;
  bool discard_ = false;
  ItemId item_;
  size_t item_got_ = 0;  // payload bytes, over all frames
  Landing landing_;
  SegmentCursor cursor_;
  ItemMeta meta_;
  std::vector<uint64_t> sums_;
  ChunkVerifier verifier_;

  std::unique_ptr<std::byte[]> scratch_;  // made when first needed
};

}  // namespace quarry::transport::tcp

#endif  // QUARRY_COMMON_TRANSPORT_TCP_FRAME_READER_H_
