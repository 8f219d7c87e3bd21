#include "quarry/block.h"

namespace quarry {

absl::string_view Name(MissCause cause) {
  switch (cause) {
    case MissCause::kNone:
      return "none";
    case MissCause::kNeverStored:
      return "never_stored";
    case MissCause::kEvicted:
      return "evicted";
    case MissCause::kIncomplete:
      return "incomplete";
    case MissCause::kInFlight:
      return "in_flight";
    case MissCause::kRefused:
      return "refused";
    case MissCause::kRetired:
      return "retired";
    case MissCause::kNodeLost:
      return "node_lost";
    case MissCause::kCorrupt:
      return "corrupt";
    case MissCause::kExpired:
      return "expired";
    case MissCause::kOptedOut:
      return "opted_out";
  }
  return "unknown";
}

absl::string_view Name(RefusalReason reason) {
  switch (reason) {
    case RefusalReason::kNone:
      return "none";
    case RefusalReason::kNoSpace:
      return "no_space";
    case RefusalReason::kChecksum:
      return "checksum";
    case RefusalReason::kWrongSize:
      return "wrong_size";
    case RefusalReason::kDraining:
      return "draining";
    case RefusalReason::kInFlight:
      return "in_flight";
    case RefusalReason::kCancelled:
      return "cancelled";
    case RefusalReason::kTooManyInFlight:
      return "too_many_in_flight";
    case RefusalReason::kOptedOut:
      return "opted_out";
  }
  return "unknown";
}

absl::string_view Name(LeaseLimit limit) {
  switch (limit) {
    case LeaseLimit::kNone:
      return "none";
    case LeaseLimit::kLeases:
      return "leases";
    case LeaseLimit::kBlocks:
      return "blocks";
    case LeaseLimit::kBytes:
      return "bytes";
  }
  return "unknown";
}

absl::string_view Name(BlockState state) {
  switch (state) {
    case BlockState::kAbsent:
      return "absent";
    case BlockState::kDram:
      return "dram";
    case BlockState::kSsd:
      return "ssd";
    case BlockState::kIncomplete:
      return "incomplete";
    case BlockState::kInFlight:
      return "in_flight";
  }
  return "unknown";
}

}  // namespace quarry
