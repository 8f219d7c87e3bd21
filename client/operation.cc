#include "client/operation.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace quarry {

void Operation::Finish(const absl::Status& status, bool held, OperationHost::EndedBy by) {
  Completion done = MakeCompletion(Completion::Kind::kDone);
  done.status = status;
  done.held = held;
  FillResult(status, &done);
  context_.queue->Push(std::move(done));
  SayFarewell(status, by);
}

void Operation::Release() { context_.queue->Push(MakeCompletion(Completion::Kind::kReleased)); }

void Operation::SayFarewell(const absl::Status&, OperationHost::EndedBy by) {
  if (by == OperationHost::EndedBy::kClient) context_.host->SendAside({id(), wire::Cancel{}});
}

Completion Operation::MakeCompletion(Completion::Kind kind) const {
  Completion completion;
  completion.kind = kind;
  completion.operation = context_.id;
  completion.user_data = context_.user_data;
  return completion;
}

absl::Status Operation::ProtocolViolation(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat("the server broke the protocol: ", what));
}

}  // namespace quarry
