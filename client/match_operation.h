// A match on its way.
#ifndef QUARRY_CLIENT_MATCH_OPERATION_H_
#define QUARRY_CLIENT_MATCH_OPERATION_H_

#include <memory>
#include <utility>
#include <vector>

#include "client/chains.h"
#include "client/namespace_state.h"
#include "client/reply_operation.h"
#include "quarry/client.h"

namespace quarry {

class MatchOperation : public ReplyOperation {
 public:
  // Of whom the result's advice is to speak.
  struct Asker {
    std::shared_ptr<const Namespace::State> ns;
    uint64_t local_tokens = 0;
    uint32_t shards = 0;  // loaded of each block; 0: all
  };

  MatchOperation(Context context, std::vector<ChainShape> asked, Asker asker)
      : ReplyOperation(std::move(context)), asked_(std::move(asked)), asker_(std::move(asker)) {}

  absl::Status TakeReply(const wire::ServerMessage& message) override;

 protected:
  void FillResult(const absl::Status&, Completion* completion) override { completion->match = result_; }

 private:
  LoadAdvice Advise() const;

  const std::vector<ChainShape> asked_;
  const Asker asker_;
  const std::shared_ptr<MatchResult> result_ = std::make_shared<MatchResult>();
};

}  // namespace quarry

#endif  // QUARRY_CLIENT_MATCH_OPERATION_H_
