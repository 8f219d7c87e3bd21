// A unary call from its handler to its answer, counted and timed.
#ifndef QUARRY_SERVER_GRPC_UNARY_H_
#define QUARRY_SERVER_GRPC_UNARY_H_

#include "absl/status/status.h"
#include "server/grpc/status.h"
#include "server/metrics/service_metrics.h"

namespace quarry::server {

// `calls` has a Handle(const Request&, Response*).
template <typename Calls, typename Request, typename Response>
absl::Status Counted(ServiceMetrics* metrics, Op op, Calls* calls, const Request& request, Response* response) {
  const OpTimer timer(metrics, op);
  absl::Status status = calls->Handle(request, response);
  if (!status.ok()) metrics->Failed(op);
  return status;
}

template <typename Calls, typename Request, typename Response>
grpc::ServerUnaryReactor* Serve(grpc::CallbackServerContext* context, ServiceMetrics* metrics, Op op, Calls* calls,
                                const Request& request, Response* response) {
  return Answer(context, Counted(metrics, op, calls, request, response));
}

}  // namespace quarry::server

#endif  // QUARRY_SERVER_GRPC_UNARY_H_
