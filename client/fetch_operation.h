// A fetch on its way: a match and the get of what it finds, in one round trip.
#ifndef QUARRY_CLIENT_FETCH_OPERATION_H_
#define QUARRY_CLIENT_FETCH_OPERATION_H_

#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "client/chains.h"
#include "client/get_operation.h"

namespace quarry {

// Calls `each` with every destination, counted through all chains, until that says false: with what
// ends it here where the match leaves it out, else with nullptr. Whether it never said so.
bool ForEachDestination(absl::Span<const ChainShape> asked, const MatchResult& match,
                        absl::FunctionRef<bool(uint32_t index, const ItemResult* left_out)> each);

// The items are the hashes, counted through all chains.
class FetchOperation : public GetOperation {
 public:
  FetchOperation(Context context, std::vector<ChainShape> asked, std::vector<TransferItem> items,
                 TransferSettings settings);

  absl::Status OnMessage(const wire::ServerMessage& message) override;

 protected:
  void FillResult(const absl::Status& status, Completion* completion) override;

 private:
  absl::Status OnMatchReply(const wire::MatchReply& reply);

  const std::vector<ChainShape> asked_;
  const std::shared_ptr<FetchResult> result_ = std::make_shared<FetchResult>();  // loop only
  bool matched_ = false;                                                         // loop only
};

}  // namespace quarry

#endif  // QUARRY_CLIENT_FETCH_OPERATION_H_
