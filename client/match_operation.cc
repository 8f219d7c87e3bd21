#include "client/match_operation.h"

namespace quarry {

absl::Status MatchOperation::TakeReply(const wire::ServerMessage& message) {
  const auto* reply = std::get_if<wire::MatchReply>(&message.body);
  if (reply == nullptr) return ProtocolViolation("a match was answered by another message");
  if (!FromWire(*reply, asked_, result_.get())) return ProtocolViolation("a match reply does not fit its request");
  return absl::OkStatus();
}

}  // namespace quarry
