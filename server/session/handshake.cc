#include "server/session/handshake.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

namespace quarry::server {
namespace {

constexpr size_t kMaxClientNameBytes = 256;

absl::Status CheckVersion(uint32_t major, uint32_t minor) {
  if (major == wire::kMajorVersion) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the client speaks protocol version ", major, ".", minor,
                                                    ", this node ", wire::kMajorVersion, ".", wire::kMinorVersion,
                                                    ": the major versions must be equal"));
}

}  // namespace

void SendNow(int fd, const wire::ServerMessage& message) {
  std::string out;
  wire::AppendFramed(message, &out);
  [[maybe_unused]] ssize_t sent = send(fd, out.data(), out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

wire::ServerMessage ErrorMessage(uint64_t request, const absl::Status& status) {
  return {request, wire::Error{static_cast<uint32_t>(status.code()), status.message(), {}}};
}

Handshake::Handshake(UniqueFd fd, EventLoop* loop, std::function<void(Handshake*, Result)> done)
    : fd_(std::move(fd)), loop_(loop), done_(std::move(done)) {
  loop_->Add(fd_.get(), EPOLLIN, this);
  timer_ = loop_->After(kTimeoutNs, [this] {
    timer_ = 0;
    Finish({.status = absl::DeadlineExceededError("the connection did not say what it is")});
  });
}

Handshake::~Handshake() {
  if (fd_) loop_->Remove(fd_.get(), this);
  if (timer_ != 0) loop_->CancelTimer(timer_);
}

void Handshake::Finish(Result result) {
  // Timers run before what is posted, so this one could still fire before the end.
  if (timer_ != 0) loop_->CancelTimer(std::exchange(timer_, 0));
  loop_->Remove(fd_.get(), this);
  if (result.status.ok()) result.fd = std::move(fd_);
  fd_ = UniqueFd();
  done_(this, std::move(result));
}

void Handshake::OnEvents(uint32_t) {
  if (absl::Status status = in_.Fill(fd_.get()); !status.ok()) {
    Finish({.status = status});
    return;
  }
  if (!preface_seen_) {
    absl::string_view preface;
    if (!in_.Take(wire::kPreface.size(), &preface)) return;
    if (preface != wire::kPreface) {
      Finish({.status = absl::InvalidArgumentError("the connection does not start with the preface")});
      return;
    }
    preface_seen_ = true;
  }
  absl::string_view bytes;
  Result result;
  const bool whole = in_.Next(&bytes, &result.status);
  if (const size_t length = whole ? bytes.size() : in_.awaited(); length > kMaxHelloBytes) {
    result.status =
        absl::InvalidArgumentError(absl::StrCat("the first message has ", length, " bytes, at most ", kMaxHelloBytes));
    SendNow(fd_.get(), ErrorMessage(/*request=*/0, result.status));
  }
  if (!result.status.ok()) {
    Finish(std::move(result));
    return;
  }
  if (!whole) return;
  if (auto message = wire::DecodeClientMessage(bytes); !message.ok()) {
    result.status = message.status();
  } else {
    result.request = message->request;
    result.status = absl::OkStatus();
    Interpret(*message, &result);
  }
  if (!result.status.ok()) SendNow(fd_.get(), ErrorMessage(result.request, result.status));
  result.buffer = std::move(in_);
  Finish(std::move(result));
}

void Handshake::Interpret(const wire::ClientMessage& message, Result* result) {
  if (const auto* hello = std::get_if<wire::Hello>(&message.body)) {
    result->is_control = true;
    result->status = CheckVersion(hello->major, hello->minor);
    result->minor = std::min(hello->minor, wire::kMinorVersion);
    if (result->status.ok() && hello->client.size() > kMaxClientNameBytes) {
      result->status = absl::InvalidArgumentError(
          absl::StrCat("hello.client: ", hello->client.size(), " bytes, at most ", kMaxClientNameBytes));
    }
    result->client = std::string(hello->client);
    result->credential = std::string(hello->credential);
  } else if (const auto* data = std::get_if<wire::DataHello>(&message.body)) {
    result->status = CheckVersion(data->major, data->minor);
    result->session = std::string(data->session);
    result->shared_memory = data->shared_memory;
    result->ucx = data->ucx;
  } else {
    result->status = absl::FailedPreconditionError("the first message must be hello or data_hello");
  }
}

}  // namespace quarry::server
