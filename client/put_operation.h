// A put on its way.
#ifndef QUARRY_CLIENT_PUT_OPERATION_H_
#define QUARRY_CLIENT_PUT_OPERATION_H_

#include "client/transfer_operation.h"

namespace quarry {

class PutOperation : public TransferOperation {
 public:
  using TransferOperation::TransferOperation;
  absl::Status OnMessage(const wire::ServerMessage& message) override;
};

}  // namespace quarry

#endif  // QUARRY_CLIENT_PUT_OPERATION_H_
