#include "tools/quarryctl/archive/format.h"

#include "absl/strings/str_cat.h"
#include "common/checksum.h"
#include "quarry/model_spec.h"

namespace quarry::ctl {
namespace {

void AppendLittleEndian(uint64_t value, size_t bytes, std::string* out) {
  for (size_t i = 0; i < bytes; ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

uint64_t ReadLittleEndian(absl::string_view bytes, size_t count) {
  uint64_t value = 0;
  for (size_t i = count; i > 0; --i) value = value << 8 | static_cast<uint8_t>(bytes[i - 1]);
  return value;
}

absl::Status Beyond(absl::string_view field, uint64_t value, uint64_t least, uint64_t most) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", value, ", must be ", least, " to ", most));
}

}  // namespace

void AppendUint32(uint32_t value, std::string* out) { AppendLittleEndian(value, sizeof value, out); }
void AppendUint64(uint64_t value, std::string* out) { AppendLittleEndian(value, sizeof value, out); }
uint32_t ReadUint32(absl::string_view bytes) {
  return static_cast<uint32_t>(ReadLittleEndian(bytes, sizeof(uint32_t)));
}
uint64_t ReadUint64(absl::string_view bytes) { return ReadLittleEndian(bytes, sizeof(uint64_t)); }

void AppendHead(const RecordHead& head, std::string* out) {
  out->push_back(static_cast<char>(RecordKind::kShard));
  out->push_back(static_cast<char>(head.group));
  out->push_back(static_cast<char>(head.hash_bytes));
  out->push_back(static_cast<char>(head.parent_bytes));
  AppendUint32(head.shard, out);
  AppendUint64(head.depth, out);
  AppendUint64(head.payload_bytes, out);
}

RecordHead ReadHead(absl::string_view bytes) {
  RecordHead head;
  head.group = static_cast<uint8_t>(bytes[1]);
  head.hash_bytes = static_cast<uint8_t>(bytes[2]);
  head.parent_bytes = static_cast<uint8_t>(bytes[3]);
  head.shard = ReadUint32(bytes.substr(4));
  head.depth = ReadUint64(bytes.substr(8));
  head.payload_bytes = ReadUint64(bytes.substr(16));
  return head;
}

uint64_t Sum(absl::string_view bytes) { return ChunkSum(bytes.data(), bytes.size()); }

uint64_t NextChain(uint64_t chain, uint64_t record_sum) {
  std::string both;
  AppendUint64(chain, &both);
  AppendUint64(record_sum, &both);
  return Sum(both);
}

absl::Status CheckInfo(const v1::NamespaceInfo& info) {
  if (info.name().empty()) return absl::InvalidArgumentError("name: empty");
  const v1::ModelSpec& spec = info.spec();
  if (spec.hash_bytes() < 1 || spec.hash_bytes() > kMaxHashBytes) {
    return Beyond("spec.hash_bytes", spec.hash_bytes(), 1, kMaxHashBytes);
  }
  const auto groups = static_cast<uint64_t>(spec.groups_size());
  if (groups < 1 || groups > kMaxGroups) return Beyond("spec.groups", groups, 1, kMaxGroups);
  for (int i = 0; i < spec.groups_size(); ++i) {
    const v1::GroupSpec& group = spec.groups(i);
    const std::string field = absl::StrCat("spec.groups[", i, "]");
    if (group.shards() < 1 || group.shards() > kMaxShards) {
      return Beyond(field + ".shards", group.shards(), 1, kMaxShards);
    }
    if (group.shard_bytes() < 1 || group.shard_bytes() > kMaxShardBytes) {
      return Beyond(field + ".shard_bytes", group.shard_bytes(), 1, kMaxShardBytes);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckHead(const RecordHead& head, const v1::ModelSpec& spec) {
  if (head.group >= static_cast<uint32_t>(spec.groups_size())) {
    return Beyond("group", head.group, 0, static_cast<uint64_t>(spec.groups_size()) - 1);
  }
  const v1::GroupSpec& group = spec.groups(static_cast<int>(head.group));
  if (head.shard >= group.shards()) return Beyond("shard", head.shard, 0, group.shards() - 1);
  if (head.hash_bytes != spec.hash_bytes()) {
    return Beyond("hash", head.hash_bytes, spec.hash_bytes(), spec.hash_bytes());
  }
  if (head.parent_bytes != 0 && head.parent_bytes != spec.hash_bytes()) {
    return absl::InvalidArgumentError(
        absl::StrCat("parent: ", head.parent_bytes, " bytes, must be 0 or ", spec.hash_bytes()));
  }
  const uint64_t least = group.exact_bytes() ? group.shard_bytes() : 1;
  if (head.payload_bytes < least || head.payload_bytes > group.shard_bytes()) {
    return Beyond("payload", head.payload_bytes, least, group.shard_bytes());
  }
  return absl::OkStatus();
}

}  // namespace quarry::ctl
