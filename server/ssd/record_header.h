// What lies in front of every payload on an SSD. It says all that is needed to know whose
// bytes follow, so a record is believed for what it is, not for where it lies.
//
// Little-endian, padded with zeros to whole pages:
//
// | offset | bytes | what                                                    |
// | 0      | 8     | magic "QRYBLOCK"                                        |
// | 8      | 4     | version, 1                                              |
// | 12     | 4     | bytes of the header, a multiple of kPageBytes           |
// | 16     | 8     | sum: XXH3-64 of the header with these 8 bytes as zeros  |
// | 24     | 8     | generation of the extent                                |
// | 32     | 8     | root of the payload's sums (common/checksum.h)          |
// | 40     | 4     | payload bytes                                           |
// | 44     | 2     | shard                                                   |
// | 46     | 1     | group                                                   |
// | 47     | 1     | bytes of the hash                                       |
// | 48     | 32    | namespace id                                            |
// | 80     | 64    | hash                                                    |
// | 144    | 64    | for encryption: cipher, key id, nonce, tags; zeros: none |
// | 208    | 8 n   | sums of the payload's chunks                            |
#ifndef QUARRY_SERVER_SSD_RECORD_HEADER_H_
#define QUARRY_SERVER_SSD_RECORD_HEADER_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace quarry::server {

inline constexpr uint64_t kPageBytes = 4096;  // what direct IO counts in

constexpr uint64_t InWholePages(uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

// Whose bytes a record has. The strings are the caller's.
struct RecordIdentity {
  absl::string_view namespace_id;  // 32 bytes
  uint8_t group = 0;
  uint16_t shard = 0;
  absl::string_view hash;  // at most kMaxHashBytes
};

struct RecordHeader {
  RecordIdentity identity;
  uint64_t generation = 0;
  uint32_t payload_bytes = 0;
  uint64_t root = 0;
  absl::Span<const uint64_t> sums;  // ChunkCount(payload_bytes) of them
};

// Chunks of a payload; the default is all.
struct ChunkRange {
  size_t first = 0;
  size_t end = SIZE_MAX;
};

// Of the header of such a payload, in whole pages.
uint64_t RecordHeaderBytes(uint64_t payload_bytes);
// Header and payload, in whole pages: what a record takes of an extent.
uint64_t RecordBytes(uint64_t payload_bytes);

// `to` has RecordHeaderBytes(header.payload_bytes).
void EncodeRecordHeader(const RecordHeader& header, std::byte* to);
// The same header for another extent.
void SetGeneration(uint64_t generation, std::byte* header);

enum class RecordCheck : uint8_t {
  kGood,
  kTorn,     // not a header, or its sum does not hold: it was never written whole, or has rotted
  kForeign,  // a header of something else: another block, or another time
};

// Reads what lies in `from`, whose size is a multiple of kPageBytes. On kGood `sums` are
// those of the payload, in `from`, and `root` is the one that was stored. `expected.root`
// and `expected.sums` are not looked at.
RecordCheck DecodeRecordHeader(absl::Span<const std::byte> from, const RecordHeader& expected, uint64_t* root,
                               absl::Span<const uint64_t>* sums);

// Whether these are the header and the payload that `expected` says, bit for bit as they were
// summed. `root` and `sums` as above. Of the payload only `chunks` are looked at.
bool RecordHolds(absl::Span<const std::byte> header, const std::byte* payload, const RecordHeader& expected,
                 uint64_t* root, absl::Span<const uint64_t>* sums, ChunkRange chunks = {});

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SSD_RECORD_HEADER_H_
