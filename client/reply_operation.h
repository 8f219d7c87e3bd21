// An operation that one reply ends and that has no buffers.
#ifndef QUARRY_CLIENT_REPLY_OPERATION_H_
#define QUARRY_CLIENT_REPLY_OPERATION_H_

#include "client/operation.h"

namespace quarry {

class ReplyOperation : public Operation {
 public:
  using Operation::Operation;

  absl::Status OnMessage(const wire::ServerMessage& message) final {
    if (absl::Status status = TakeReply(message); !status.ok()) return status;
    context().host->EndOperation(id(), absl::OkStatus(), OperationHost::EndedBy::kServer);
    return absl::OkStatus();
  }
  // Takes what the reply says, before the operation is done; on whatever thread has read it.
  // Not OK: the server broke the protocol.
  virtual absl::Status TakeReply(const wire::ServerMessage& message) = 0;
};

}  // namespace quarry

#endif  // QUARRY_CLIENT_REPLY_OPERATION_H_
