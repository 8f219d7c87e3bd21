// A match on its way.
#ifndef QUARRY_CLIENT_MATCH_OPERATION_H_
#define QUARRY_CLIENT_MATCH_OPERATION_H_

#include <memory>
#include <utility>
#include <vector>

#include "client/chains.h"
#include "client/reply_operation.h"
#include "quarry/client.h"

namespace quarry {

class MatchOperation : public ReplyOperation {
 public:
  MatchOperation(Context context, std::vector<ChainShape> asked)
      : ReplyOperation(std::move(context)), asked_(std::move(asked)) {}

  absl::Status TakeReply(const wire::ServerMessage& message) override;

 protected:
  void FillResult(const absl::Status&, Completion* completion) override { completion->match = result_; }

 private:
  const std::vector<ChainShape> asked_;
  const std::shared_ptr<MatchResult> result_ = std::make_shared<MatchResult>();
};

}  // namespace quarry

#endif  // QUARRY_CLIENT_MATCH_OPERATION_H_
