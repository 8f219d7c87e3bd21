// Verifies what a stopped node left in an --ssd-dir: `quarryd --check DIR`.
#ifndef QUARRY_SERVER_SSD_CHECK_H_
#define QUARRY_SERVER_SSD_CHECK_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace quarry::server {

struct SsdCheckResult {
  uint64_t namespaces = 0;
  uint64_t extents = 0;
  uint64_t records = 0;        // in the catalog
  uint64_t good_records = 0;   // every byte of header and payload is as it was summed
  uint64_t payload_bytes = 0;  // of these
  uint64_t void_records = 0;   // of a namespace that was flushed: they are not served, and harmless
  uint64_t bad_records = 0;    // would be misses
  uint64_t unreadable = 0;     // entries of the catalog itself

  bool good() const { return bad_records == 0 && unreadable == 0; }
};

// Reads all of it and changes nothing. `on_bad` gets a sentence about each record that does not
// hold. FailedPrecondition: a daemon has it open, or a newer version has written it; NotFound:
// nothing is there.
absl::StatusOr<SsdCheckResult> CheckSsdDir(const std::string& dir,
                                           const std::function<void(absl::string_view)>& on_bad);

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SSD_CHECK_H_
