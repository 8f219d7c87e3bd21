// Words for blocks that the public API and the server share: hashes of a chain, why a
// block is not served, why a put was not stored.
#ifndef QUARRY_BLOCK_H_
#define QUARRY_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "quarry/export.h"

namespace quarry {

// Values as in proto/quarry/v1/types.proto, which documents them.
enum class BlockState : uint8_t { kAbsent = 0, kDram = 1, kSsd = 2, kIncomplete = 3, kInFlight = 4 };

enum class MissCause : uint8_t {
  kNone = 0,
  kNeverStored = 1,
  kEvicted = 2,
  kIncomplete = 3,
  kInFlight = 4,
  kRefused = 5,
  kRetired = 6,
  kNodeLost = 7,
  kCorrupt = 8,
  kExpired = 9,
  kOptedOut = 10,
};
inline constexpr int kMissCauses = 11;

enum class RefusalReason : uint8_t {
  kNone = 0,
  kNoSpace = 1,
  kChecksum = 2,
  kWrongSize = 3,
  kDraining = 4,
  kInFlight = 5,
  kCancelled = 6,
  kTooManyInFlight = 7,
  kOptedOut = 8,
};
inline constexpr int kRefusalReasons = 9;

// Which bound on leases left usable blocks without one.
enum class LeaseLimit : uint8_t { kNone = 0, kLeases = 1, kBlocks = 2, kBytes = 3 };
inline constexpr int kLeaseLimits = 4;

enum class PutOutcome : uint8_t { kUnknown = 0, kStored = 1, kAlreadyThere = 2, kRefused = 3 };

// snake_case names, as in metrics and logs: "never_stored", "no_space", ...
QUARRY_EXPORT absl::string_view Name(MissCause cause);
QUARRY_EXPORT absl::string_view Name(RefusalReason reason);
QUARRY_EXPORT absl::string_view Name(LeaseLimit limit);
QUARRY_EXPORT absl::string_view Name(BlockState state);

// A view of hashes of one length, packed one behind the other. Does not own the bytes.
class HashSpan {
 public:
  HashSpan() = default;
  // bytes.size() must be a multiple of hash_bytes, which must not be 0.
  HashSpan(absl::string_view bytes, uint32_t hash_bytes) : bytes_(bytes), hash_bytes_(hash_bytes) {}

  size_t size() const { return bytes_.size() / hash_bytes_; }
  bool empty() const { return bytes_.empty(); }
  uint32_t hash_bytes() const { return hash_bytes_; }
  absl::string_view bytes() const { return bytes_; }
  absl::string_view operator[](size_t i) const { return bytes_.substr(i * hash_bytes_, hash_bytes_); }
  HashSpan subspan(size_t first, size_t count) const {
    return {bytes_.substr(first * hash_bytes_, count * hash_bytes_), hash_bytes_};
  }

 private:
  absl::string_view bytes_;
  uint32_t hash_bytes_ = 1;
};

}  // namespace quarry

#endif  // QUARRY_BLOCK_H_
