// What the unary calls of quarry.v1.Cache do: from a request to a response, without the
// machinery of a call. cache_api.h puts them on the wire.
#ifndef QUARRY_SERVER_GRPC_CACHE_CALLS_H_
#define QUARRY_SERVER_GRPC_CACHE_CALLS_H_

#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "quarry/v1/cache.pb.h"
#include "server/cache_service.h"

namespace quarry::server {

// Thread-safe. Nothing here waits. Errors as cache.proto says; a refused request changes
// nothing.
class CacheCalls {
 public:
  // `service` outlives it.
  CacheCalls(CacheService* service, std::string version);

  // Differing fields are set when it fails because of them, too.
  absl::Status Handle(const v1::OpenNamespaceRequest& request, v1::OpenNamespaceResponse* response);
  // Counted here or in the service, not by whoever calls it.
  absl::Status Handle(const v1::MatchRequest& request, v1::MatchResponse* response);
  absl::Status Handle(const v1::LookupRequest& request, v1::LookupResponse* response);
  absl::Status Handle(const v1::TouchRequest& request, v1::TouchResponse* response);
  absl::Status Handle(const v1::RemoveRequest& request, v1::RemoveResponse* response);
  absl::Status Handle(const v1::ListRequest& request, v1::ListResponse* response);
  absl::Status Handle(const v1::StatsRequest& request, v1::StatsResponse* response);

 private:
  CacheService* const service_;
  const std::string version_;
  const std::chrono::steady_clock::time_point started_;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_GRPC_CACHE_CALLS_H_
