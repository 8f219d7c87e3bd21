#include "client/items.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/disjoint.h"
#include "common/checksum.h"

namespace quarry {
namespace {

template <typename... Parts>
absl::Status Bad(absl::string_view name, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(name, ".", parts...));
}

std::string ItemName(size_t index) { return absl::StrCat("items[", index, "]"); }

absl::Status CheckCount(const wire::Limits& limits, size_t count) {
  if (count >= 1 && count <= limits.max_items) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("items: 1 to ", limits.max_items, " (limits.max_items), got ", count));
}

absl::Status CheckKey(const ModelSpec& spec, const Item& item, absl::string_view name) {
  if (item.group >= spec.groups.size()) {
    return Bad(name, "group: 0 to ", spec.groups.size() - 1, ", got ", item.group);
  }
  const uint32_t shards = spec.groups[item.group].shards;
  if (item.shard >= shards) return Bad(name, "shard: 0 to ", shards - 1, ", got ", item.shard);
  if (item.hash.size() != spec.hash_bytes) {
    return Bad(name, "hash: ", spec.hash_bytes, " bytes, got ", item.hash.size());
  }
  return absl::OkStatus();
}

// Sum of all pieces of a list that nobody has checked yet; `bound` + 1 when it is larger.
uint64_t BoundedTotal(absl::Span<const Segment> segments, uint64_t bound) {
  uint64_t total = 0;
  for (const Segment& segment : segments) {
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(segment.length, segment.count, &bytes) || bytes > bound - total) return bound + 1;
    total += bytes;
  }
  return total;
}

// `expected` 0: as many as the segments hold, 1 to `bound`.
absl::Status CheckSegments(const ItemRules& rules, const SegmentList& segments, SegmentUse use, uint64_t expected,
                           uint64_t bound, absl::string_view name) {
  if (expected == 0) {
    expected = BoundedTotal(segments, bound);
    if (expected == 0 || expected > bound) return Bad(name, "segments: 1 to ", bound, " bytes in all");
  }
  absl::Status status = ValidateSegments(segments, use, rules.registered, expected);
  if (!status.ok()) return Bad(name, absl::string_view(status.message()));
  return status;
}

absl::Status CheckGetItem(const ItemRules& rules, const Item& item, absl::string_view name) {
  if (absl::Status status = CheckKey(rules.ns.spec, item, name); !status.ok()) return status;
  const GroupSpec& group = rules.ns.spec.groups[item.group];
  if (item.offset >= group.shard_bytes) {
    return Bad(name, "offset: below the shard's ", group.shard_bytes, " bytes, got ", item.offset);
  }
  const uint64_t rest = group.shard_bytes - item.offset;
  if (item.bytes > rest) {
    return Bad(name, "bytes: at most ", rest, " from offset ", item.offset, " on, got ", item.bytes);
  }
  const uint64_t expected = item.bytes == 0 && group.exact_bytes ? rest : item.bytes;
  return CheckSegments(rules, item.segments, SegmentUse::kDestination, expected, rest, name);
}

absl::Status CheckPutItem(const ItemRules& rules, const Item& item, absl::string_view name) {
  if (absl::Status status = CheckKey(rules.ns.spec, item, name); !status.ok()) return status;
  if (item.offset != 0 || item.bytes != 0) return Bad(name, "offset, bytes: for gets only; a put is of a whole shard");
  if (!item.parent.empty() && item.parent.size() != rules.ns.spec.hash_bytes) {
    return Bad(name, "parent: empty or ", rules.ns.spec.hash_bytes, " bytes, got ", item.parent.size());
  }
  const GroupSpec& group = rules.ns.spec.groups[item.group];
  return CheckSegments(rules, item.segments, SegmentUse::kSource, group.exact_bytes ? group.shard_bytes : 0,
                       group.shard_bytes, name);
}

// What the server is asked for; 0: to the end.
uint64_t WireBytes(const GroupSpec& group, const Item& item) {
  return item.bytes != 0 || group.exact_bytes ? item.bytes : TotalBytes(item.segments);
}

bool FollowsInGetRun(const wire::GetRun& run, const Item& item, uint64_t bytes) {
  return run.group == item.group && run.shard == item.shard && run.offset == item.offset && run.bytes == bytes;
}

// `previous` is the item before, the last one in the run.
bool FollowsInPutRun(const Item& previous, const Item& item) {
  return previous.group == item.group && previous.shard == item.shard && item.depth == previous.depth + 1 &&
         (item.parent.empty() || item.parent == previous.hash);
}

// All hashes, one behind the other: consecutive items' hashes are then one view.
void PackHashes(absl::Span<const Item> items, std::string* hashes) {
  hashes->clear();
  hashes->reserve(items.size() * items[0].hash.size());
  for (const Item& item : items) hashes->append(item.hash.data(), item.hash.size());
}

void ShrinkEqualSizes(std::vector<uint64_t>* bytes) {
  const uint64_t first = bytes->front();
  if (std::all_of(bytes->begin(), bytes->end(), [first](uint64_t size) { return size == first; })) bytes->resize(1);
}

}  // namespace

absl::Status CheckGetItems(const ItemRules& rules, absl::Span<const Item> items) {
  if (absl::Status status = CheckCount(rules.limits, items.size()); !status.ok()) return status;
  std::vector<absl::Span<const Segment>> destinations;
  destinations.reserve(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    if (absl::Status status = CheckGetItem(rules, items[i], ItemName(i)); !status.ok()) return status;
    destinations.push_back(items[i].segments);
  }
  return CheckDisjoint(destinations, ItemName);
}

absl::Status CheckPutItems(const ItemRules& rules, absl::Span<const Item> items) {
  if (absl::Status status = CheckCount(rules.limits, items.size()); !status.ok()) return status;
  for (size_t i = 0; i < items.size(); ++i) {
    if (absl::Status status = CheckPutItem(rules, items[i], ItemName(i)); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CheckDestination(const ItemRules& rules, uint32_t group, const SegmentList& segments,
                              absl::string_view name) {
  const GroupSpec& spec = rules.ns.spec.groups[group];
  return CheckSegments(rules, segments, SegmentUse::kDestination, spec.exact_bytes ? spec.shard_bytes : 0,
                       spec.shard_bytes, name);
}

std::vector<TransferItem> ToTransferItems(const Namespace::State& ns, std::vector<Item> items) {
  std::vector<TransferItem> transfers;
  transfers.reserve(items.size());
  for (Item& item : items) {
    TransferItem& transfer = transfers.emplace_back();
    transfer.identity_seed = IdentitySeed(ns.id, item.group, item.shard, item.hash);
    transfer.bytes = TotalBytes(item.segments);
    transfer.segments = std::move(item.segments);
  }
  return transfers;
}

std::vector<wire::GetRun> BuildGetRuns(const ModelSpec& spec, absl::Span<const Item> items, std::string* hashes) {
  PackHashes(items, hashes);
  const size_t hash_bytes = spec.hash_bytes;
  std::vector<wire::GetRun> runs;
  for (size_t i = 0; i < items.size(); ++i) {
    const Item& item = items[i];
    const uint64_t bytes = WireBytes(spec.groups[item.group], item);
    if (runs.empty() || !FollowsInGetRun(runs.back(), item, bytes)) {
      runs.push_back(
          {item.group, item.shard, absl::string_view(hashes->data() + i * hash_bytes, 0), item.offset, bytes});
    }
    wire::GetRun& run = runs.back();
    run.hashes = absl::string_view(run.hashes.data(), run.hashes.size() + hash_bytes);
  }
  return runs;
}

std::vector<wire::PutRun> BuildPutRuns(absl::Span<const Item> items, std::string* hashes) {
  PackHashes(items, hashes);
  const size_t hash_bytes = items[0].hash.size();
  std::vector<wire::PutRun> runs;
  for (size_t i = 0; i < items.size(); ++i) {
    const Item& item = items[i];
    if (runs.empty() || !FollowsInPutRun(items[i - 1], item)) {
      runs.push_back(
          {item.group, item.shard, item.depth, absl::string_view(hashes->data() + i * hash_bytes, 0), item.parent, {}});
    }
    wire::PutRun& run = runs.back();
    run.hashes = absl::string_view(run.hashes.data(), run.hashes.size() + hash_bytes);
    run.bytes.push_back(TotalBytes(item.segments));
  }
  for (wire::PutRun& run : runs) ShrinkEqualSizes(&run.bytes);
  return runs;
}

}  // namespace quarry
