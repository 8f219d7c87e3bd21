#include "client/match_operation.h"

#include <algorithm>

#include "common/load_advice.h"

namespace quarry {

absl::Status MatchOperation::TakeReply(const wire::ServerMessage& message) {
  const auto* reply = std::get_if<wire::MatchReply>(&message.body);
  if (reply == nullptr) return ProtocolViolation("a match was answered by another message");
  if (!FromWire(*reply, asked_, result_.get())) return ProtocolViolation("a match reply does not fit its request");
  result_->advice = Advise();
  return absl::OkStatus();
}

LoadAdvice MatchOperation::Advise() const {
  const ModelSpec& spec = asker_.ns->spec;
  std::vector<LoadableChain> chains;
  chains.reserve(asked_.size());
  for (size_t c = 0; c < asked_.size(); ++c) {
    const GroupSpec& group = spec.groups[asked_[c].group];
    const MatchResult::Chain& matched = result_->chains[c];
    const uint32_t shards = asker_.shards == 0 ? group.shards : std::min(asker_.shards, group.shards);
    chains.push_back({&group,
                      asked_[c].first_block,
                      matched.states,
                      {matched.first_usable, matched.end_usable},
                      shards * group.shard_bytes});
  }
  LoadQuestion question;
  question.local_tokens = asker_.local_tokens;
  question.usable_tokens = result_->usable_tokens;
  question.chains = chains;
  question.paths = context().load_rates->paths();
  question.prefill_tokens_per_second = asker_.ns->prefill_tokens_per_second.load(std::memory_order_relaxed);
  return AdviseLoad(question);
}

}  // namespace quarry
