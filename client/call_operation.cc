#include "client/call_operation.h"

namespace quarry {

absl::Status CallOperation::OnMessage(const wire::ServerMessage& message) {
  if (!take_reply_(message)) return ProtocolViolation("a reply of another kind than was asked for");
  context().host->EndOperation(id(), absl::OkStatus(), OperationHost::EndedBy::kServer);
  return absl::OkStatus();
}

}  // namespace quarry
