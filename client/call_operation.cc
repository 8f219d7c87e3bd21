#include "client/call_operation.h"

namespace quarry {

absl::Status CallOperation::TakeReply(const wire::ServerMessage& message) {
  if (!take_reply_(message)) return ProtocolViolation("a reply of another kind than was asked for");
  return absl::OkStatus();
}

}  // namespace quarry
