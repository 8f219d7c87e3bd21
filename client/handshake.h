// How a session is opened: the blocking exchanges at the start of its streams.
#ifndef QUARRY_CLIENT_HANDSHAKE_H_
#define QUARRY_CLIENT_HANDSHAKE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/dial_interrupt.h"
#include "common/net/socket.h"
#include "common/session/messages.h"

namespace quarry {

// What an Error message says, as a status.
absl::Status StatusOf(const wire::Error& error);

struct Greeting {
  UniqueFd control;
  std::string session;  // what a data stream shows to join
  wire::Limits limits;
  std::string socket;  // the node's Unix socket, if it is on this host
  wire::UcxOffer ucx = wire::UcxOffer::kNone;
  uint32_t minor = 0;  // the version in force
};

// What a data stream is for, as DataHello says it; none of these: it carries payload.
struct StreamUse {
  uint32_t shared_memory = 0;
  bool ucx = false;
};

// Dials and exchanges Hello. FailedPrecondition names both versions when the majors
// differ. Deadlines by Clock::Real; `interrupt` ends it sooner.
absl::StatusOr<Greeting> OpenControlStream(const std::string& server, absl::string_view client_name,
                                           int64_t deadline_ns, DialInterrupt* interrupt);
// Dials and joins the session.
absl::StatusOr<UniqueFd> OpenDataStream(const std::string& server, absl::string_view session, const StreamUse& use,
                                        int64_t deadline_ns, DialInterrupt* interrupt);

}  // namespace quarry

#endif  // QUARRY_CLIENT_HANDSHAKE_H_
