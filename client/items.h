// Items as a get or put names them: checked before anything is sent, and encoded in runs.
#ifndef QUARRY_CLIENT_ITEMS_H_
#define QUARRY_CLIENT_ITEMS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/namespace_state.h"
#include "client/transfer_operation.h"
#include "common/session/messages.h"
#include "quarry/client.h"

namespace quarry {

struct ItemRules {
  const Namespace::State& ns;
  const wire::Limits& limits;
  absl::Span<const MemoryRange> registered;
};

// Not OK: InvalidArgument that names the item, the field and the bound, e.g.
// "items[3].segments[2].length ...".
absl::Status CheckGetItems(const ItemRules& rules, absl::Span<const Item> items);
absl::Status CheckPutItems(const ItemRules& rules, absl::Span<const Item> items);

// What a fetch puts into one destination, and what the caller calls it.
absl::Status CheckDestination(const ItemRules& rules, uint32_t group, const SegmentList& segments,
                              absl::string_view name);

// Of items that passed the checks.
std::vector<TransferItem> ToTransferItems(const Namespace::State& ns, std::vector<Item> items);

// The runs' views point into `hashes`, which gets all hashes, one behind the other.
std::vector<wire::GetRun> BuildGetRuns(const ModelSpec& spec, absl::Span<const Item> items, std::string* hashes);
std::vector<wire::PutRun> BuildPutRuns(absl::Span<const Item> items, std::string* hashes);

}  // namespace quarry

#endif  // QUARRY_CLIENT_ITEMS_H_
