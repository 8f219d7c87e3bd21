// An item with its metadata as one message: how it is put together, and how it lands and is
// checked. Also what stands for an item that moves by itself: where it lies, or that it is there.
#ifndef QUARRY_COMMON_TRANSPORT_UCX_ITEM_MESSAGE_H_
#define QUARRY_COMMON_TRANSPORT_UCX_ITEM_MESSAGE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/transport/tcp/frame.h"
#include "common/transport/ucx/worker.h"

namespace quarry::transport::ucx {

// On its way out. Lives until the worker is done with it.
class ItemMessage {
 public:
  // The message's data lies in `segments`: of kData the item, as long as `meta.range`.
  ItemMessage(uint64_t token, MessageType type, ItemId id, const tcp::ItemMeta& meta,
              absl::Span<const Segment> segments);

  const std::string& header() const { return header_; }
  absl::Span<const Segment> segments() const { return all_.empty() ? segments_ : absl::MakeConstSpan(all_); }

 private:
  const absl::Span<const Segment> segments_;
  std::string header_;
  std::string trailing_;      // metadata that the header has no room for
  std::vector<Segment> all_;  // segments_ and that
};

// On its way in.
class ItemLanding {
 public:
  enum class Outcome : uint8_t { kIntact, kChecksum, kBroken };

  // `header_meta`: what stood behind the message's header.
  ItemLanding(const Message& message, absl::Span<const std::byte> header_meta);

  // Of the data before the metadata in an arrival of that message; SIZE_MAX: it is too short.
  size_t DataBytes(const Arrival& arrival) const;
  // The data goes to `segments`, as long as DataBytes says; their memory outlives the landing. `landed` is
  // called once, perhaps at once; false: UCX has failed. The landing lives until then.
  void Land(Worker* worker, Arrival* arrival, absl::Span<const Segment> segments, std::function<void(bool)> landed);
  // After it has landed. InvalidArgument: the metadata is malformed.
  absl::Status ReadMeta();
  // As ReadMeta, when all of the item is in `segments`. kBroken: `status` tells what is wrong with the
  // metadata, or that it is not of so long an item. Where `verify`, every chunk is summed and compared
  // with what came with it, if there is anything; `sums`, if given, gets the sums.
  Outcome Check(absl::Span<const Segment> segments, size_t item_bytes, bool verify, uint64_t* sums,
                absl::Status* status);
  const tcp::ItemMeta& meta() const { return meta_; }

 private:
  const size_t trailing_bytes_;
  std::string encoded_;       // metadata
  std::vector<Segment> all_;  // the data's segments and the trailing metadata
  tcp::ItemMeta meta_;
  std::vector<uint64_t> expected_;
};

}  // namespace quarry::transport::ucx

#endif  // QUARRY_COMMON_TRANSPORT_UCX_ITEM_MESSAGE_H_
