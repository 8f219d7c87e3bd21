// An item with its metadata as one message: how it is put together, and how it lands and is
// checked.
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
  // The item's bytes lie in `segments`, as long as `meta.range`.
  ItemMessage(uint64_t token, ItemId id, const tcp::ItemMeta& meta, absl::Span<const Segment> segments);

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

  // Of the item in an arrival of that message.
  size_t ItemBytes(const Arrival& arrival) const;
  // The item goes to `segments`, as long as ItemBytes says; they outlive the landing. `landed` is
  // called once, perhaps at once; false: UCX has failed. The landing lives until then.
  void Land(Worker* worker, Arrival* arrival, absl::Span<const Segment> segments, std::function<void(bool)> landed);
  // After it has landed. kBroken: `status` names what is wrong with the metadata. Where `verify`,
  // every chunk of the item is summed and compared with what came with it, if there is anything;
  // `sums`, if given, gets the sums.
  Outcome Check(bool verify, uint64_t* sums, absl::Status* status);
  const tcp::ItemMeta& meta() const { return meta_; }

 private:
  const size_t trailing_bytes_;
  std::string encoded_;  // metadata
  absl::Span<const Segment> segments_;
  std::vector<Segment> all_;  // segments_ and the trailing metadata
  size_t bytes_ = 0;
  tcp::ItemMeta meta_;
  std::vector<uint64_t> expected_;
};

}  // namespace quarry::transport::ucx

#endif  // QUARRY_COMMON_TRANSPORT_UCX_ITEM_MESSAGE_H_
