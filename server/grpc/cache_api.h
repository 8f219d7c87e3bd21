// quarry.v1.Cache over the cache service. Every call is answered on the thread that brings
// it: nothing it does waits.
#ifndef QUARRY_SERVER_GRPC_CACHE_API_H_
#define QUARRY_SERVER_GRPC_CACHE_API_H_

#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "quarry/v1/cache.grpc.pb.h"
#include "server/cache_service.h"

namespace quarry::server {

// Thread-safe.
class CacheApi final : public v1::Cache::CallbackService {
 public:
  // `service` outlives it.
  CacheApi(CacheService* service, std::string version);

  grpc::ServerUnaryReactor* Match(grpc::CallbackServerContext* context, const v1::MatchRequest* request,
                                  v1::MatchResponse* response) override;
  grpc::ServerUnaryReactor* Stats(grpc::CallbackServerContext* context, const v1::StatsRequest* request,
                                  v1::StatsResponse* response) override;

 private:
  absl::Status DoMatch(const v1::MatchRequest& request, v1::MatchResponse* response);

  CacheService* const service_;
  const std::string version_;
  const std::chrono::steady_clock::time_point started_;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_GRPC_CACHE_API_H_
