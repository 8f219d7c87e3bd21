// Between the messages of cache.proto and the server's own types.
#ifndef QUARRY_SERVER_GRPC_CONVERT_H_
#define QUARRY_SERVER_GRPC_CONVERT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "quarry/v1/cache.pb.h"
#include "server/block_store.h"
#include "server/namespaces.h"

namespace quarry::server {

// Validated by whoever opens a namespace with it, but for the kinds of groups.
absl::StatusOr<ModelSpec> FromProto(const v1::ModelSpec& spec);

using Hashes = google::protobuf::RepeatedPtrField<std::string>;
// Packed one behind the other. InvalidArgument names the first that is wrong: more than
// `max_hashes`, or one that is not `hash_bytes` long.
absl::StatusOr<std::string> PackHashes(const Hashes& hashes, absl::string_view field, uint32_t hash_bytes,
                                       uint32_t max_hashes);

// A request's chains with their hashes packed one behind the other, as the store takes
// them. Owns the bytes that `chains` views.
struct PackedChains {
  std::vector<std::string> hashes;
  std::vector<ChainQuery> chains;
};

// InvalidArgument names the first chain or hash that is wrong: more than `max_hashes` in
// all, or a hash that is not `hash_bytes` long.
absl::StatusOr<PackedChains> PackChains(const v1::MatchRequest& request, uint32_t hash_bytes, uint32_t max_hashes);

void ToProto(const MatchResult& result, v1::MatchResponse* response);
void ToProto(const StoreStats& stats, v1::StatsResponse* response);
void ToProto(const Namespace& ns, v1::NamespaceInfo* info);
// Moves the hash; leaves estimated_load_us.
void ToProto(BlockInfo&& block, v1::BlockInfo* out);

}  // namespace quarry::server

#endif  // QUARRY_SERVER_GRPC_CONVERT_H_
