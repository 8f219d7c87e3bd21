#include "common/transport/ucx/greeting.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/net/socket.h"

namespace quarry::transport::ucx {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

struct GreetingWire {
  uint32_t bytes;
  uint32_t kind;
  uint64_t token;
  uint32_t major;
  uint32_t minor;
  uint32_t rma;
  uint32_t zero;
};
static_assert(sizeof(GreetingWire) == kGreetingFixedBytes);

}  // namespace

std::string EncodeGreeting(const Greeting& greeting) {
  const auto text = absl::string_view(greeting.text).substr(0, kMaxGreetingBytes - kGreetingFixedBytes);
  const GreetingWire wire = {static_cast<uint32_t>(kGreetingFixedBytes + text.size()),
                             static_cast<uint32_t>(greeting.kind),
                             greeting.token,
                             greeting.major,
                             greeting.minor,
                             greeting.rma,
                             0};
  return absl::StrCat(absl::string_view(reinterpret_cast<const char*>(&wire), sizeof wire), text);
}

absl::StatusOr<size_t> GreetingBytes(absl::string_view prefix) {
  uint32_t bytes;
  std::memcpy(&bytes, prefix.data(), sizeof bytes);
  if (bytes >= kGreetingFixedBytes && bytes <= kMaxGreetingBytes) return bytes;
  return absl::InvalidArgumentError(
      absl::StrCat("greeting of ", bytes, " bytes, must be ", kGreetingFixedBytes, " to ", kMaxGreetingBytes));
}

absl::StatusOr<Greeting> DecodeGreeting(absl::string_view in) {
  if (in.size() < kGreetingFixedBytes) return absl::InvalidArgumentError("greeting: too short");
  GreetingWire wire;
  std::memcpy(&wire, in.data(), sizeof wire);
  Greeting greeting;
  greeting.kind = static_cast<Greeting::Kind>(wire.kind);
  if (greeting.kind != Greeting::Kind::kIntroduction && greeting.kind != Greeting::Kind::kRefusal) {
    return absl::InvalidArgumentError(absl::StrCat("greeting kind: 1 or 2, got ", wire.kind));
  }
  if (wire.rma > 1 || wire.zero != 0) return absl::InvalidArgumentError("greeting: rma: 0 or 1, then 0");
  greeting.rma = wire.rma == 1;
  greeting.token = wire.token;
  greeting.major = wire.major;
  greeting.minor = wire.minor;
  greeting.text = std::string(in.substr(kGreetingFixedBytes));
  return greeting;
}

absl::Status CheckVersions(const Greeting& one, const Greeting& other) {
  if (one.major == other.major && one.minor == other.minor) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("UCX ", one.major, ".", one.minor, " at one end and ", other.major,
                                                    ".", other.minor, " at the other were not tried together"));
}

absl::StatusOr<Greeting> Greet(int fd, const Greeting& mine, int64_t deadline_ns) {
  if (absl::Status status = WriteAll(fd, EncodeGreeting(mine), deadline_ns); !status.ok()) return status;
  std::string in(kGreetingPrefixBytes, '\0');
  if (absl::Status status = ReadExactly(fd, in.data(), in.size(), deadline_ns); !status.ok()) return status;
  const auto bytes = GreetingBytes(in);
  if (!bytes.ok()) return bytes.status();
  in.resize(*bytes);
  absl::Status status = ReadExactly(fd, &in[kGreetingPrefixBytes], *bytes - kGreetingPrefixBytes, deadline_ns);
  if (!status.ok()) return status;
  auto greeting = DecodeGreeting(in);
  if (greeting.ok() && greeting->kind == Greeting::Kind::kRefusal) {
    return absl::FailedPreconditionError(absl::StrCat("the server refuses UCX: ", greeting->text));
  }
  return greeting;
}

}  // namespace quarry::transport::ucx
