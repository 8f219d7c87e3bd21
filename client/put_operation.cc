#include "client/put_operation.h"

#include <utility>

namespace quarry {

absl::Status PutOperation::OnMessage(const wire::ServerMessage& message) {
  const auto* progress = std::get_if<wire::PutProgress>(&message.body);
  if (progress == nullptr) return ProtocolViolation("a put was answered by another message");
  for (size_t i = 0; i < progress->items.size(); ++i) {
    if (progress->items[i] >= item_count()) return ProtocolViolation("a put's outcome names no item of it");
    if (progress->outcomes[i] == PutOutcome::kUnknown) return ProtocolViolation("a put's outcome is not one");
    ItemResult result;
    result.outcome = progress->outcomes[i];
    result.refusal = progress->reasons[i];
    if (result.refusal == RefusalReason::kCancelled && IsLate()) {
      result = {};
      result.status = final_status();
    }
    const size_t moved = result.outcome == PutOutcome::kStored ? item_bytes(progress->items[i]) : 0;
    EndItem(progress->items[i], std::move(result), moved);
  }
  if (!progress->done) return absl::OkStatus();
  for (uint32_t index = 0; index < item_count(); ++index) {
    if (!ItemEnded(index)) return ProtocolViolation("a put was done before all its items");
  }
  SetServerDone();
  return absl::OkStatus();
}

}  // namespace quarry
