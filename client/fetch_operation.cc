#include "client/fetch_operation.h"

#include <utility>

namespace quarry {
namespace {

// Why a block that the server does not move is not moved.
ItemResult LeftOut(BlockState state, bool behind_a_miss, MissCause first_miss) {
  ItemResult result;
  switch (state) {
    case BlockState::kIncomplete:
      result.miss = MissCause::kIncomplete;
      break;
    case BlockState::kInFlight:
      result.miss = MissCause::kInFlight;
      break;
    case BlockState::kAbsent:
    case BlockState::kDram:
    case BlockState::kSsd:
      // Absent, or there but behind what is not: the first miss is why.
      if (behind_a_miss) result.miss = first_miss;
      break;
  }
  if (result.miss == MissCause::kNone) {
    result.status = absl::OutOfRangeError("left out: beyond max_blocks, or fewer than min_blocks are usable");
  }
  return result;
}

}  // namespace

bool ForEachDestination(absl::Span<const ChainShape> asked, const MatchResult& match,
                        absl::FunctionRef<bool(uint32_t, const ItemResult*)> each) {
  uint32_t index = 0;
  for (size_t c = 0; c < asked.size(); ++c) {
    const MatchResult::Chain& chain = match.chains[c];
    bool behind_a_miss = false;
    for (size_t k = 0; k < asked[c].hashes; ++k, ++index) {
      const uint64_t block = asked[c].first_block + k;
      const BlockState state = chain.states[k];
      behind_a_miss = behind_a_miss || (state != BlockState::kDram && state != BlockState::kSsd);
      const bool moves = block >= chain.first_usable && block < chain.end_usable;
      const ItemResult left_out = moves ? ItemResult() : LeftOut(state, behind_a_miss, match.first_miss);
      if (!each(index, moves ? nullptr : &left_out)) return false;
    }
  }
  return true;
}

FetchOperation::FetchOperation(Context operation, std::vector<ChainShape> asked, std::vector<TransferItem> items,
                               TransferSettings settings)
    : GetOperation(std::move(operation), std::move(items), settings, /*window_bytes=*/0), asked_(std::move(asked)) {}

absl::Status FetchOperation::OnMessage(const wire::ServerMessage& message) {
  if (const auto* reply = std::get_if<wire::MatchReply>(&message.body)) {
    return matched_ ? ProtocolViolation("a fetch was answered by two match replies") : OnMatchReply(*reply);
  }
  const auto* progress = std::get_if<wire::GetProgress>(&message.body);
  if (progress == nullptr) return ProtocolViolation("a fetch was answered by another message");
  if (!matched_) return ProtocolViolation("a fetch's progress came before its match reply");
  return OnProgress(*progress);
}

absl::Status FetchOperation::OnMatchReply(const wire::MatchReply& reply) {
  if (!FromWire(reply, asked_, &result_->match)) return ProtocolViolation("a match reply does not fit its request");
  matched_ = true;
  result_->fetched_blocks = reply.fetched_blocks;
  const bool sound = ForEachDestination(asked_, result_->match, [this](uint32_t index, const ItemResult* left_out) {
    if (left_out == nullptr) return true;
    if (ItemEnded(index)) return false;
    EndItem(index, *left_out);
    return true;
  });
  return sound ? absl::OkStatus() : ProtocolViolation("a fetch moved a block that its match left out");
}

void FetchOperation::FillResult(const absl::Status& status, Completion* completion) {
  RecordRate(status);
  result_->transfer = std::move(*TakeResult(status));
  completion->fetch = result_;
}

}  // namespace quarry
