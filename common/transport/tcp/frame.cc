#include "common/transport/tcp/frame.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace quarry::transport::tcp {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are read and written in place");

constexpr size_t kReservedMetaAt = kFixedMetaBytes - sizeof(uint64_t);

template <typename T>
void Store(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof value);
}

template <typename T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace

void EncodeHeader(const FrameHeader& header, std::byte out[kHeaderBytes]) {
  Store<uint32_t>(static_cast<uint32_t>(header.type), out);
  Store<uint32_t>(header.id.item, out + 4);
  Store<uint64_t>(header.id.request, out + 8);
  Store<uint64_t>(header.offset, out + 16);
  Store<uint32_t>(header.payload_bytes, out + 24);
  Store<uint32_t>(header.meta_bytes, out + 28);
}

absl::Status DecodeHeader(const std::byte in[kHeaderBytes], FrameHeader* header) {
  const uint32_t type = Load<uint32_t>(in);
  if (type < static_cast<uint32_t>(FrameType::kData) || type > static_cast<uint32_t>(FrameType::kAbort)) {
    return absl::InvalidArgumentError(absl::StrCat("frame type ", type, " is not one of 1 to 3"));
  }
  header->type = static_cast<FrameType>(type);
  header->id.item = Load<uint32_t>(in + 4);
  header->id.request = Load<uint64_t>(in + 8);
  header->offset = Load<uint64_t>(in + 16);
  header->payload_bytes = Load<uint32_t>(in + 24);
  header->meta_bytes = Load<uint32_t>(in + 28);
  if (header->type != FrameType::kData) {
    if (header->payload_bytes != 0 || header->meta_bytes != 0 || header->offset != 0) {
      return absl::InvalidArgumentError("offset, payload_bytes and meta_bytes must be 0 in a frame without data");
    }
    return absl::OkStatus();
  }
  if (header->payload_bytes == 0 || header->payload_bytes > kMaxFramePayload) {
    return absl::InvalidArgumentError(
        absl::StrCat("payload_bytes is ", header->payload_bytes, ", must be 1 to ", kMaxFramePayload));
  }
  if (header->offset >= kMaxShardBytes) {
    return absl::InvalidArgumentError(absl::StrCat("offset is ", header->offset, ", must be below ", kMaxShardBytes));
  }
  const bool first = header->offset == 0;
  const bool meta_ok = first ? header->meta_bytes >= kFixedMetaBytes && header->meta_bytes <= kMaxMetaBytes &&
                                   header->meta_bytes % kMetaStep == 0
                             : header->meta_bytes == 0;
  if (!meta_ok) {
    return absl::InvalidArgumentError(absl::StrCat("meta_bytes is ", header->meta_bytes, ", must be ", kFixedMetaBytes,
                                                   " to ", kMaxMetaBytes, " by steps of ", kMetaStep,
                                                   " in an item's first frame and 0 in others"));
  }
  return absl::OkStatus();
}

ItemMeta MetaOf(const Transfer& transfer) {
  return {.root = transfer.root,
          .range = {transfer.offset, transfer.bytes, transfer.payload_bytes},
          .edge_sums = {transfer.edge_sums[0], transfer.edge_sums[1]},
          .sums = absl::MakeConstSpan(transfer.sums, ChunkCount(transfer.payload_bytes))};
}

ItemMeta SumSource(const ExposedRequest::Item& item, std::vector<uint64_t>* sums) {
  ItemMeta meta{.root = 0, .range = {0, item.bytes, item.bytes}, .edge_sums = {0, 0}, .sums = {}};
  if (!item.checksum) return meta;
  sums->resize(ChunkCount(item.bytes));
  SumSegments(item.segments, item.bytes, sums->data());
  meta.sums = *sums;
  meta.root = RootSum(item.identity_seed, item.bytes, *sums);
  return meta;
}

bool RootHolds(const ExposedRequest::Item& item, const ItemMeta& meta) {
  return !meta.sums.empty() && meta.root == RootSum(item.identity_seed, meta.range.payload_bytes, meta.sums);
}

void EncodeMeta(const ItemMeta& meta, std::string* out) {
  const uint64_t fixed[] = {meta.root,         meta.range.payload_bytes, meta.range.offset, meta.range.bytes,
                            meta.edge_sums[0], meta.edge_sums[1],        meta.sums.size(),  0};
  static_assert(sizeof fixed == kFixedMetaBytes);
  out->assign(reinterpret_cast<const char*>(fixed), sizeof fixed);
  out->append(reinterpret_cast<const char*>(meta.sums.data()), meta.sums.size() * sizeof(uint64_t));
  out->resize(MetaBytes(meta.sums.size()), '\0');
}

absl::Status DecodeMeta(absl::Span<const std::byte> in, uint64_t* sums, ItemMeta* meta) {
  if (in.size() < kFixedMetaBytes || in.size() > kMaxMetaBytes || in.size() % kMetaStep != 0) {
    return absl::InvalidArgumentError(absl::StrCat("meta_bytes is ", in.size(), ", must be ", kFixedMetaBytes, " to ",
                                                   kMaxMetaBytes, " by steps of ", kMetaStep));
  }
  meta->root = Load<uint64_t>(in.data());
  PayloadRange& range = meta->range;
  range.payload_bytes = Load<uint64_t>(in.data() + 8);
  range.offset = Load<uint64_t>(in.data() + 16);
  range.bytes = Load<uint64_t>(in.data() + 24);
  meta->edge_sums[0] = Load<uint64_t>(in.data() + 32);
  meta->edge_sums[1] = Load<uint64_t>(in.data() + 40);
  if (range.payload_bytes == 0 || range.payload_bytes > kMaxShardBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("payload_bytes is ", range.payload_bytes, ", must be 1 to ", kMaxShardBytes));
  }
  if (range.bytes == 0 || range.offset > range.payload_bytes || range.bytes > range.payload_bytes - range.offset) {
    return absl::InvalidArgumentError(absl::StrCat("range_offset ", range.offset, " and range_bytes ", range.bytes,
                                                   " are not within payload_bytes ", range.payload_bytes));
  }
  const uint64_t count = Load<uint64_t>(in.data() + 48);
  if (count != 0 && count != ChunkCount(range.payload_bytes)) {
    return absl::InvalidArgumentError(absl::StrCat(count, " chunk sums for ", range.payload_bytes, " bytes, must be ",
                                                   ChunkCount(range.payload_bytes), " or none"));
  }
  if (in.size() != MetaBytes(count)) {
    return absl::InvalidArgumentError(
        absl::StrCat("item metadata of ", in.size(), " bytes with ", count, " chunk sums, must be ", MetaBytes(count)));
  }
  // What is 0 now may get a meaning later: nobody may have sent anything else there.
  const absl::Span<const std::byte> filling = in.subspan(kFixedMetaBytes + count * sizeof(uint64_t));
  const bool filling_zero = std::all_of(filling.begin(), filling.end(), [](std::byte b) { return b == std::byte{0}; });
  if (Load<uint64_t>(in.data() + kReservedMetaAt) != 0 || !filling_zero) {
    return absl::InvalidArgumentError("item metadata: what is reserved and what fills it up must be 0");
  }
  std::memcpy(sums, in.data() + kFixedMetaBytes, count * 8);
  meta->sums = absl::MakeSpan(sums, count);
  return absl::OkStatus();
}

}  // namespace quarry::transport::tcp
