// How operations end that a request has opted out of: RequestControl.no_load and no_store.
#ifndef QUARRY_CLIENT_OPTED_OUT_H_
#define QUARRY_CLIENT_OPTED_OUT_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "client/completion_queue_impl.h"
#include "quarry/client.h"

namespace quarry {

// The kDone of each, with its whole result; operation and user_data are the caller's to set.
Completion OptedOutMatch(absl::Span<const Chain> chains, const MatchOptions& options);
Completion OptedOutGet(size_t items);
Completion OptedOutPut(size_t items);
Completion OptedOutFetch(absl::Span<const Chain> chains, const std::vector<std::vector<SegmentList>>& destinations,
                         const MatchOptions& options);

// A kItem for each item of a kDone.
void PushItems(const Completion& done, CompletionQueue::Impl* queue);

}  // namespace quarry

#endif  // QUARRY_CLIENT_OPTED_OUT_H_
