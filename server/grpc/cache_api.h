// quarry.v1.Cache over the cache service. Every unary call is answered on the thread that
// brings it: nothing it does waits. The streams have files of their own.
#ifndef QUARRY_SERVER_GRPC_CACHE_API_H_
#define QUARRY_SERVER_GRPC_CACHE_API_H_

#include <string>

#include "quarry/v1/cache.grpc.pb.h"
#include "server/cache_service.h"
#include "server/grpc/cache_calls.h"
#include "server/grpc/stream_limits.h"

namespace quarry::server {

// Thread-safe. Get and Put carry payload: their messages come and go as raw bytes, so that
// payload is not copied through protobuf objects.
class CacheApi final
    : public v1::Cache::WithRawCallbackMethod_Get<v1::Cache::WithRawCallbackMethod_Put<v1::Cache::CallbackService>> {
 public:
  // `service` outlives it.
  CacheApi(CacheService* service, std::string version, int64_t stream_idle_ns);

  const StreamLimits& stream_limits() const { return limits_; }
  // Ends streams whose clients have stopped. Called every few tens of milliseconds.
  void EndIdleStreams();

  grpc::ServerUnaryReactor* OpenNamespace(grpc::CallbackServerContext* context, const v1::OpenNamespaceRequest* request,
                                          v1::OpenNamespaceResponse* response) override;
  grpc::ServerUnaryReactor* Match(grpc::CallbackServerContext* context, const v1::MatchRequest* request,
                                  v1::MatchResponse* response) override;
  grpc::ServerUnaryReactor* Lookup(grpc::CallbackServerContext* context, const v1::LookupRequest* request,
                                   v1::LookupResponse* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Get(grpc::CallbackServerContext* context,
                                                  const grpc::ByteBuffer* request) override;
  grpc::ServerReadReactor<grpc::ByteBuffer>* Put(grpc::CallbackServerContext* context,
                                                 grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Touch(grpc::CallbackServerContext* context, const v1::TouchRequest* request,
                                  v1::TouchResponse* response) override;
  grpc::ServerUnaryReactor* Remove(grpc::CallbackServerContext* context, const v1::RemoveRequest* request,
                                   v1::RemoveResponse* response) override;
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context, const v1::ListRequest* request,
                                 v1::ListResponse* response) override;
  grpc::ServerUnaryReactor* Stats(grpc::CallbackServerContext* context, const v1::StatsRequest* request,
                                  v1::StatsResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchResponse>* Watch(grpc::CallbackServerContext* context,
                                                     const v1::WatchRequest* request) override;

 private:
  CacheService* const service_;
  CacheCalls calls_;
  StreamLimits limits_;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_GRPC_CACHE_API_H_
