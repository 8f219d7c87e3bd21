#include "tools/quarryctl/node/connection.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/units.h"

namespace quarry::ctl {
namespace {

constexpr int kMaxMessageBytes = 16 << 20;
// Whoever asks again and again finds a node soon that has come back.
constexpr int kMostBackoffMs = 1'000;

std::shared_ptr<grpc::Channel> Open(const std::string& server) {
  // Errors are one line, ours.
  gpr_set_log_function([](gpr_log_func_args*) {});
  google::protobuf::SetLogHandler(nullptr);
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kMostBackoffMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMostBackoffMs);
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  return grpc::CreateCustomChannel("dns:///" + server, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

Connection::Connection(const GlobalOptions& globals)
    : server_(globals.server), tenant_(globals.tenant), timeout_ns_(globals.timeout_ns) {
  const std::shared_ptr<grpc::Channel> channel = Open(server_);
  stubs_ = {v1::Cache::NewStub(channel), v1::Admin::NewStub(channel)};
}

void Connection::SetDeadline(grpc::ClientContext* context) const {
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::nanoseconds(timeout_ns_));
}

absl::Status Connection::ToStatus(const grpc::Status& status) const {
  const std::string& message = status.error_message();
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      return absl::UnavailableError(absl::StrCat(server_, ": ", message));
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return absl::DeadlineExceededError(
          absl::StrCat(server_, ": no answer within --timeout, ", FormatDuration(timeout_ns_)));
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::OUT_OF_RANGE:
      return absl::InvalidArgumentError(message);
    default:
      return {static_cast<absl::StatusCode>(status.error_code()), message};
  }
}

}  // namespace quarry::ctl
