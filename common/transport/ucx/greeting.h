// How the ends of a session find each other's UCX workers: one message each way on a connection
// of the session, which then stays open to tell that the other end is there.
//
//   offset  bytes  little-endian
//        0      4  bytes of the whole, at most 8 KiB
//        4      4  kind
//        8      8  token
//       16      4  UCX's major version
//       20      4  minor version
//       24      4  1: items move by RMA (from a client: may move)
//       28      4  0
//       32         worker address; of a refusal: why
#ifndef QUARRY_COMMON_TRANSPORT_UCX_GREETING_H_
#define QUARRY_COMMON_TRANSPORT_UCX_GREETING_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace quarry::transport::ucx {

inline constexpr size_t kGreetingPrefixBytes = 4;
inline constexpr size_t kGreetingFixedBytes = 32;
inline constexpr size_t kMaxGreetingBytes = 8 << 10;

struct Greeting {
  enum class Kind : uint32_t { kIntroduction = 1, kRefusal };
  Kind kind = Kind::kIntroduction;
  uint64_t token = 0;  // for messages to the end that says it
  uint32_t major = 0;
  uint32_t minor = 0;
  bool rma = false;
  std::string text;
};

std::string EncodeGreeting(const Greeting& greeting);
// The length of the whole, by its first kGreetingPrefixBytes. InvalidArgument: out of bounds.
absl::StatusOr<size_t> GreetingBytes(absl::string_view prefix);
// Of a whole greeting. InvalidArgument names the field.
absl::StatusOr<Greeting> DecodeGreeting(absl::string_view in);

// OK: these two versions of UCX were tried together. FailedPrecondition names both.
absl::Status CheckVersions(const Greeting& one, const Greeting& other);

// At the client: says `mine`, and waits for the server's. Not OK: there is no UCX with it.
absl::StatusOr<Greeting> Greet(int fd, const Greeting& mine, int64_t deadline_ns);

}  // namespace quarry::transport::ucx

#endif  // QUARRY_COMMON_TRANSPORT_UCX_GREETING_H_
