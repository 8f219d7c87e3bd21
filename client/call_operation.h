// An exchange of one message and one reply, for the blocking calls.
#ifndef QUARRY_CLIENT_CALL_OPERATION_H_
#define QUARRY_CLIENT_CALL_OPERATION_H_

#include <functional>
#include <utility>

#include "client/operation.h"

namespace quarry {

class CallOperation : public Operation {
 public:
  // Takes the reply, on the loop's thread, before the operation is done. False when it is
  // not the message that was asked for.
  using TakeReply = std::function<bool(const wire::ServerMessage&)>;

  CallOperation(Context context, TakeReply take_reply)
      : Operation(std::move(context)), take_reply_(std::move(take_reply)) {}

  absl::Status OnMessage(const wire::ServerMessage& message) override;

 protected:
  void FillResult(const absl::Status&, Completion*) override {}

 private:
  const TakeReply take_reply_;
};

}  // namespace quarry

#endif  // QUARRY_CLIENT_CALL_OPERATION_H_
