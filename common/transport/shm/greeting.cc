#include "common/transport/shm/greeting.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "common/transport/shm/message.h"
#include "common/transport/shm/stream.h"

namespace quarry::transport::shm {
namespace {

absl::Status ReadMessage(int fd, int64_t deadline_ns, MessageType type, Message* message, std::string* body) {
  char header[kHeaderBytes];
  size_t body_bytes = 0;
  if (absl::Status status = ReadExactly(fd, header, sizeof header, deadline_ns); !status.ok()) return status;
  if (absl::Status status = DecodeMessageHeader(header, message, &body_bytes); !status.ok()) return status;
  body->resize(body_bytes);
  if (absl::Status status = ReadExactly(fd, body->data(), body_bytes, deadline_ns); !status.ok()) return status;
  if (message->type != type) return absl::UnavailableError("the server greets in another way");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Greeting> Greet(int fd, const ClientShared& shared, int64_t deadline_ns) {
  Message message;
  std::string body;
  absl::Status status = ReadMessage(fd, deadline_ns, MessageType::kChallenge, &message, &body);
  if (!status.ok()) return status;
  if (body.size() != kNonceBytes) return absl::UnavailableError("the server's nonce is of another size");
  AllowPeerToReach(shared.server);
  // Where the server looks for it until it answers.
  const std::string nonce = body;

  std::vector<UniqueFd> fds;
  fds.emplace_back(fcntl(shared.board->gates_fd(), F_DUPFD_CLOEXEC, 0));
  fds.emplace_back(fcntl(shared.board->items_fd(), F_DUPFD_CLOEXEC, 0));
  if (!fds[0] || !fds[1]) return ErrnoStatus(errno, "dup");
  std::string out;
  AppendMessage({.type = MessageType::kBoard, .values = {reinterpret_cast<uint64_t>(nonce.data()), 0, 0}}, &out);
  // The socket is new and holds so little without waiting.
  if (SendWithFds(fd, out, fds) != static_cast<ssize_t>(out.size())) return ErrnoStatus(errno, "sendmsg");

  if (status = ReadMessage(fd, deadline_ns, MessageType::kReady, &message, &body); !status.ok()) return status;
  return Greeting{message.flag != 0, std::move(body)};
}

}  // namespace quarry::transport::shm
