// From absl::Status to what a gRPC client gets, with machine-readable details.
#ifndef QUARRY_SERVER_GRPC_STATUS_H_
#define QUARRY_SERVER_GRPC_STATUS_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>
#include <grpcpp/support/status.h>

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace quarry::server {

// The server's messages read "field: what is wrong and what the bound is". The details say
// the same in google.rpc's words (github.com/googleapis/googleapis, google/rpc):
//   INVALID_ARGUMENT, OUT_OF_RANGE   BadRequest, one violation with field and description
//   FAILED_PRECONDITION              PreconditionFailure, a violation for each of `subjects`
//   NOT_FOUND                        ResourceInfo
//   RESOURCE_EXHAUSTED               QuotaFailure
grpc::Status ToGrpc(const absl::Status& status, const std::vector<std::string>& subjects = {});

// Ends a unary call whose response is filled.
grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const absl::Status& status,
                                 const std::vector<std::string>& subjects = {});

}  // namespace quarry::server

#endif  // QUARRY_SERVER_GRPC_STATUS_H_
