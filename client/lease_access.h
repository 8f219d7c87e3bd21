// The library's way into a Lease.
#ifndef QUARRY_CLIENT_LEASE_ACCESS_H_
#define QUARRY_CLIENT_LEASE_ACCESS_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "quarry/client.h"

namespace quarry {

struct LeaseAccess {
  static Lease Make(absl::string_view token, uint32_t granted_ms);
  static const std::string& Token(const Lease& lease) { return lease.token_; }
  static void SetGranted(Lease* lease, uint32_t granted_ms) { lease->granted_ms_ = granted_ms; }
};

}  // namespace quarry

#endif  // QUARRY_CLIENT_LEASE_ACCESS_H_
