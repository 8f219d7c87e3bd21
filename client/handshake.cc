#include "client/handshake.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace quarry {
namespace {

// How soon a peer that is gone without a word is found out, while nothing is sent.
constexpr int kKeepAliveIdleSeconds = 10;
constexpr int kKeepAliveIntervalSeconds = 5;
constexpr int kKeepAliveProbes = 3;

constexpr size_t kFramePrefixBytes = 4;

void EnableKeepAlive(int fd) {
  // Best effort: a Unix socket has none and needs none.
  const auto set = [fd](int level, int option, int value) { setsockopt(fd, level, option, &value, sizeof value); };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveIntervalSeconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveProbes);
}

absl::Status CheckMajor(const wire::HelloReply& reply) {
  if (reply.major == wire::kMajorVersion) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the server speaks protocol version ", reply.major, ".",
                                                    reply.minor, ", this client ", wire::kMajorVersion, ".",
                                                    wire::kMinorVersion));
}

// The length of the message behind the prefix. Unavailable when it is not 1 to 4 MiB:
// the peer speaks something else.
absl::StatusOr<size_t> DecodeFramePrefix(const char* prefix) {
  uint32_t length = 0;
  for (size_t i = 0; i < kFramePrefixBytes; ++i) {
    length |= static_cast<uint32_t>(static_cast<uint8_t>(prefix[i])) << (8 * i);
  }
  if (length == 0 || length > wire::kMaxMessageBytes) {
    return absl::UnavailableError(
        absl::StrCat("the server sent a message of ", length, " bytes; 1 to ", wire::kMaxMessageBytes, " are allowed"));
  }
  return length;
}

// Dials, sends the preface and `hello`, and reads the first message into `buffer`, which
// the reply points into.
absl::StatusOr<wire::HelloReply> Greet(const std::string& server, const wire::ClientMessage& hello, int64_t deadline_ns,
                                       DialInterrupt* interrupt, UniqueFd* fd, std::string* buffer) {
  auto dialled = Dial(server, deadline_ns, interrupt->event_fd());
  if (!dialled.ok()) return dialled.status();
  *fd = std::move(*dialled);
  interrupt->Watch(fd->get());
  EnableKeepAlive(fd->get());
  std::string out(wire::kPreface);
  wire::AppendFramed(hello, &out);
  if (absl::Status status = WriteAll(fd->get(), out, deadline_ns); !status.ok()) return status;

  char prefix[kFramePrefixBytes];
  if (absl::Status status = ReadExactly(fd->get(), prefix, sizeof prefix, deadline_ns); !status.ok()) return status;
  const auto length = DecodeFramePrefix(prefix);
  if (!length.ok()) return length.status();
  buffer->resize(*length);
  if (absl::Status status = ReadExactly(fd->get(), buffer->data(), *length, deadline_ns); !status.ok()) return status;

  const auto message = wire::DecodeServerMessage(*buffer);
  if (!message.ok()) {
    return absl::UnavailableError(absl::StrCat("malformed greeting: ", absl::string_view(message.status().message())));
  }
  if (const auto* error = std::get_if<wire::Error>(&message->body)) return StatusOf(*error);
  const auto* reply = std::get_if<wire::HelloReply>(&message->body);
  if (reply == nullptr) return absl::UnavailableError("the server's first message is no greeting");
  if (absl::Status status = CheckMajor(*reply); !status.ok()) return status;
  return *reply;
}

absl::Status Annotate(const std::string& server, absl::string_view stream, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(stream, " stream to ", server, ": ", absl::string_view(status.message())));
}

}  // namespace

absl::Status StatusOf(const wire::Error& error) {
  const bool known = error.code >= 1 && error.code <= static_cast<uint32_t>(absl::StatusCode::kUnauthenticated);
  const auto code = known ? static_cast<absl::StatusCode>(error.code) : absl::StatusCode::kUnknown;
  std::string message(error.message);
  // The caller learns the fields even where the server's sentence leaves them out.
  for (const std::string& field : error.differing_fields) {
    if (absl::StrContains(message, field)) continue;
    absl::StrAppend(&message, " (differing fields: ", absl::StrJoin(error.differing_fields, ", "), ")");
    break;
  }
  return absl::Status(code, message);
}

absl::StatusOr<Greeting> OpenControlStream(const std::string& server, absl::string_view client_name,
                                           int64_t deadline_ns, DialInterrupt* interrupt) {
  wire::Hello hello;
  hello.client = client_name;
  Greeting greeting;
  std::string buffer;
  const auto reply = Greet(server, {1, hello}, deadline_ns, interrupt, &greeting.control, &buffer);
  if (!reply.ok()) return Annotate(server, "control", reply.status());
  if (reply->session.size() != wire::kSessionIdBytes) {
    return absl::UnavailableError(absl::StrCat("control stream to ", server, ": the greeting has no session"));
  }
  greeting.session = std::string(reply->session);
  greeting.limits = reply->limits;
  greeting.socket = std::string(reply->socket);
  greeting.ucx = reply->ucx;
  greeting.minor = reply->minor;
  return greeting;
}

absl::StatusOr<UniqueFd> OpenDataStream(const std::string& server, absl::string_view session, const StreamUse& use,
                                        int64_t deadline_ns, DialInterrupt* interrupt) {
  wire::DataHello hello;
  hello.session = session;
  hello.shared_memory = use.shared_memory;
  hello.ucx = use.ucx;
  UniqueFd fd;
  std::string buffer;
  const auto reply = Greet(server, {1, hello}, deadline_ns, interrupt, &fd, &buffer);
  if (!reply.ok()) return Annotate(server, "data", reply.status());
  return fd;
}

}  // namespace quarry
