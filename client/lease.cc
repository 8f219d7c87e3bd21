#include "absl/strings/str_cat.h"
#include "client/lease_access.h"
#include "common/session/messages.h"

namespace quarry {
namespace {

constexpr char kVersion = 1;
constexpr size_t kGrantedBytes = 4;
constexpr size_t kSerializedBytes = 1 + kGrantedBytes + wire::kLeaseTokenBytes;

}  // namespace

Lease LeaseAccess::Make(absl::string_view token, uint32_t granted_ms) {
  Lease lease;
  lease.token_ = std::string(token);
  lease.granted_ms_ = granted_ms;
  return lease;
}

std::string Lease::Serialize() const {
  if (token_.empty()) return "";
  std::string bytes(1, kVersion);
  for (size_t i = 0; i < kGrantedBytes; ++i) bytes.push_back(static_cast<char>(granted_ms_ >> (8 * i)));
  return bytes + token_;
}

absl::StatusOr<Lease> Lease::Attach(absl::string_view serialized) {
  if (serialized.empty() || serialized[0] != kVersion) {
    return absl::InvalidArgumentError(absl::StrCat("lease: not of version ", int{kVersion}));
  }
  if (serialized.size() != kSerializedBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("lease: ", kSerializedBytes, " bytes expected, got ", serialized.size()));
  }
  uint32_t granted_ms = 0;
  for (size_t i = 0; i < kGrantedBytes; ++i) {
    granted_ms |= static_cast<uint32_t>(static_cast<uint8_t>(serialized[1 + i])) << (8 * i);
  }
  return LeaseAccess::Make(serialized.substr(1 + kGrantedBytes), granted_ms);
}

}  // namespace quarry
