#include "server/grpc/cache_api.h"

#include <utility>

#include "common/clock.h"
#include "server/grpc/get_stream.h"
#include "server/grpc/put_stream.h"
#include "server/grpc/status.h"
#include "server/grpc/unary.h"
#include "server/grpc/watch_stream.h"

namespace quarry::server {

CacheApi::CacheApi(CacheService* service, std::string version, int64_t stream_idle_ns)
    : service_(service),
      calls_(service, std::move(version)),
      limits_(service->store().arena().size(), stream_idle_ns) {}

void CacheApi::EndIdleStreams() { limits_.idle.EndIdle(Clock::Real()->NowNs()); }

grpc::ServerUnaryReactor* CacheApi::OpenNamespace(grpc::CallbackServerContext* context,
                                                  const v1::OpenNamespaceRequest* request,
                                                  v1::OpenNamespaceResponse* response) {
  const absl::Status status = Counted(&service_->metrics(), Op::kOpenNamespace, &calls_, *request, response);
  return Answer(context, status, {response->differing_fields().begin(), response->differing_fields().end()});
}

grpc::ServerUnaryReactor* CacheApi::Match(grpc::CallbackServerContext* context, const v1::MatchRequest* request,
                                          v1::MatchResponse* response) {
  return Answer(context, calls_.Handle(*request, response));
}

grpc::ServerUnaryReactor* CacheApi::Lookup(grpc::CallbackServerContext* context, const v1::LookupRequest* request,
                                           v1::LookupResponse* response) {
  return Serve(context, &service_->metrics(), Op::kLookup, &calls_, *request, response);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* CacheApi::Get(grpc::CallbackServerContext* context,
                                                          const grpc::ByteBuffer* request) {
  return new GetStream(service_, &limits_, context, *request);
}

grpc::ServerReadReactor<grpc::ByteBuffer>* CacheApi::Put(grpc::CallbackServerContext* context,
                                                         grpc::ByteBuffer* response) {
  return new PutStream(service_, &limits_, context, response);
}

grpc::ServerUnaryReactor* CacheApi::Touch(grpc::CallbackServerContext* context, const v1::TouchRequest* request,
                                          v1::TouchResponse* response) {
  return Serve(context, &service_->metrics(), Op::kTouch, &calls_, *request, response);
}

grpc::ServerUnaryReactor* CacheApi::Remove(grpc::CallbackServerContext* context, const v1::RemoveRequest* request,
                                           v1::RemoveResponse* response) {
  return Serve(context, &service_->metrics(), Op::kRemove, &calls_, *request, response);
}

grpc::ServerUnaryReactor* CacheApi::List(grpc::CallbackServerContext* context, const v1::ListRequest* request,
                                         v1::ListResponse* response) {
  return Serve(context, &service_->metrics(), Op::kList, &calls_, *request, response);
}

grpc::ServerUnaryReactor* CacheApi::Stats(grpc::CallbackServerContext* context, const v1::StatsRequest* request,
                                          v1::StatsResponse* response) {
  return Serve(context, &service_->metrics(), Op::kStats, &calls_, *request, response);
}

grpc::ServerWriteReactor<v1::WatchResponse>* CacheApi::Watch(grpc::CallbackServerContext*,
                                                             const v1::WatchRequest* request) {
  return new WatchStream(service_, &limits_.watches, *request);
}

}  // namespace quarry::server
