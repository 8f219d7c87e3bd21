// An exchange of one message and one reply, for the blocking calls.
#ifndef QUARRY_CLIENT_CALL_OPERATION_H_
#define QUARRY_CLIENT_CALL_OPERATION_H_

#include <functional>
#include <utility>

#include "client/reply_operation.h"

namespace quarry {

class CallOperation : public ReplyOperation {
 public:
  // False when the reply is not the message that was asked for.
  using Taker = std::function<bool(const wire::ServerMessage&)>;

  CallOperation(Context context, Taker take_reply)
      : ReplyOperation(std::move(context)), take_reply_(std::move(take_reply)) {}

  absl::Status TakeReply(const wire::ServerMessage& message) override;

 protected:
  void FillResult(const absl::Status&, Completion*) override {}

 private:
  const Taker take_reply_;
};

}  // namespace quarry

#endif  // QUARRY_CLIENT_CALL_OPERATION_H_
