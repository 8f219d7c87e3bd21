// The file that `quarryctl export` writes: a namespace's spec and payloads.
//
// Numbers are little-endian; sums are XXH3-64 with seed 0 (common/checksum.h).
//
//   file     preface  info  sum of both (8)  record*  end
//   preface  "QRYBLKS\n" (8)  format version (4)  bytes of info (4)
//   info     quarry.v1.NamespaceInfo with `name` and `spec`
//   record   head  hash  parent  sums of the payload's chunks of 64 KiB (8 each)
//            sum of all of these (8)  payload
//   head     1 (1)  group (1)  bytes of hash (1)  bytes of parent, 0: not known (1)
//            shard (4)  depth, the block's index in its chain (8)  bytes of payload (8)
//   end      2 (1)  zeros (7)  records (8)  bytes of all payloads (8)  chain (8)
//            sum of all of these (8)
//
// One record is one shard of a block. The chain starts as the sum behind the info; each
// record makes of it the sum of (chain, the record's own sum), 8 bytes each. So the end says
// which records the file has, in which order, and thereby every byte of it: a file that was
// cut, changed, or put together from others does not pass. Nothing follows the end.
//
// A reader knows one version. What else a later one holds, it says by a greater number.
#ifndef QUARRY_TOOLS_QUARRYCTL_ARCHIVE_FORMAT_H_
#define QUARRY_TOOLS_QUARRYCTL_ARCHIVE_FORMAT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "quarry/v1/types.pb.h"

namespace quarry::ctl {

inline constexpr char kArchiveMagic[] = "QRYBLKS\n";
inline constexpr size_t kArchiveMagicBytes = sizeof kArchiveMagic - 1;
inline constexpr uint32_t kArchiveVersion = 1;
inline constexpr size_t kArchivePrefaceBytes = kArchiveMagicBytes + 4 + 4;
inline constexpr uint32_t kMaxArchiveInfoBytes = 64 << 10;
inline constexpr size_t kRecordHeadBytes = 24;
inline constexpr size_t kArchiveEndBytes = 32;
inline constexpr size_t kSumBytes = 8;

enum class RecordKind : uint8_t { kShard = 1, kEnd = 2 };

struct ShardRecord {
  uint32_t group = 0;
  uint32_t shard = 0;
  uint64_t depth = 0;
  std::string hash;
  std::string parent;  // empty: not known
  std::string payload;
  std::vector<uint64_t> sums;  // of the payload's chunks; a writer makes them itself
};

struct ArchiveTotals {
  uint64_t records = 0;
  uint64_t payload_bytes = 0;

  friend bool operator==(const ArchiveTotals&, const ArchiveTotals&) = default;
};

void AppendUint32(uint32_t value, std::string* out);
void AppendUint64(uint64_t value, std::string* out);
uint32_t ReadUint32(absl::string_view bytes);
uint64_t ReadUint64(absl::string_view bytes);

// What a record begins with. `parent`, `hash` and `payload` count by their length.
struct RecordHead {
  uint32_t group = 0;
  uint32_t shard = 0;
  uint64_t depth = 0;
  size_t hash_bytes = 0;
  size_t parent_bytes = 0;
  uint64_t payload_bytes = 0;
};
void AppendHead(const RecordHead& head, std::string* out);
// kRecordHeadBytes of them.
RecordHead ReadHead(absl::string_view bytes);

uint64_t Sum(absl::string_view bytes);
uint64_t NextChain(uint64_t chain, uint64_t record_sum);

// Whether a namespace of that spec may be in a file: bounds that keep a reader's memory in
// bounds. The node that opens it checks the rest. InvalidArgument names the field.
absl::Status CheckInfo(const v1::NamespaceInfo& info);
// Whether the spec has such a shard.
absl::Status CheckHead(const RecordHead& head, const v1::ModelSpec& spec);

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_ARCHIVE_FORMAT_H_
