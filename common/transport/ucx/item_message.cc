#include "common/transport/ucx/item_message.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace quarry::transport::ucx {

ItemMessage::ItemMessage(uint64_t token, MessageType type, ItemId id, const tcp::ItemMeta& meta,
                         absl::Span<const Segment> segments)
    : segments_(segments) {
  std::string encoded;
  tcp::EncodeMeta(meta, &encoded);
  const bool trails = encoded.size() > kMaxMetaInHeader;
  Message message{.token = token, .id = id, .type = type};
  if (trails) message.trailing_bytes = static_cast<uint32_t>(encoded.size());
  EncodeMessage(message, &header_);
  if (!trails) {
    header_ += encoded;
    return;
  }
  trailing_ = std::move(encoded);
  all_.assign(segments.begin(), segments.end());
  all_.push_back({reinterpret_cast<std::byte*>(trailing_.data()), trailing_.size()});
}

ItemLanding::ItemLanding(const Message& message, absl::Span<const std::byte> header_meta)
    : trailing_bytes_(message.trailing_bytes),
      encoded_(reinterpret_cast<const char*>(header_meta.data()), header_meta.size()) {}

size_t ItemLanding::DataBytes(const Arrival& arrival) const {
  return arrival.bytes() < trailing_bytes_ ? SIZE_MAX : arrival.bytes() - trailing_bytes_;
}

void ItemLanding::Land(Worker* worker, Arrival* arrival, absl::Span<const Segment> segments,
                       std::function<void(bool)> landed) {
  if (trailing_bytes_ > 0) {
    encoded_.resize(trailing_bytes_);
    all_.assign(segments.begin(), segments.end());
    all_.push_back({reinterpret_cast<std::byte*>(encoded_.data()), encoded_.size()});
    segments = all_;
  }
  worker->Land(arrival, segments, [landed = std::move(landed)](ucs_status_t status) { landed(status == UCS_OK); });
}

absl::Status ItemLanding::ReadMeta() {
  const absl::Span<const std::byte> encoded(reinterpret_cast<const std::byte*>(encoded_.data()), encoded_.size());
  expected_.resize(encoded.size() / sizeof(uint64_t));
  return tcp::DecodeMeta(encoded, expected_.data(), &meta_);
}

ItemLanding::Outcome ItemLanding::Check(absl::Span<const Segment> segments, size_t item_bytes, bool verify,
                                        uint64_t* sums, absl::Status* status) {
  *status = ReadMeta();
  if (status->ok() && meta_.range.bytes != item_bytes) {
    *status = absl::InvalidArgumentError(
        absl::StrCat("range_bytes is ", meta_.range.bytes, ", the item has ", item_bytes, " bytes"));
  }
  if (!status->ok()) return Outcome::kBroken;
  if (!verify) return Outcome::kIntact;
  ChunkVerifier verifier;
  verifier.Start(segments, meta_.range, meta_.sums, meta_.edge_sums, sums);
  verifier.Advance(item_bytes);
  return verifier.intact() ? Outcome::kIntact : Outcome::kChecksum;
}

}  // namespace quarry::transport::ucx
