// A node's gRPC services as commands call them.
#ifndef QUARRY_TOOLS_QUARRYCTL_NODE_CONNECTION_H_
#define QUARRY_TOOLS_QUARRYCTL_NODE_CONNECTION_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <memory>
#include <string>
#include <tuple>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "quarry/v1/admin.grpc.pb.h"
#include "quarry/v1/cache.grpc.pb.h"
#include "tools/quarryctl/command.h"

namespace quarry::ctl {

class Connection {
 public:
  // Connects with the first call; a server that is not there is that call's error.
  explicit Connection(const GlobalOptions& globals);

  // A unary call, with the deadline of --timeout: Call(&v1::Cache::Stub::Match, request).
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                                const Request& request) {
    grpc::ClientContext context;
    SetDeadline(&context);
    Response response;
    const grpc::Status status = (stub<Stub>().*method)(&context, request, &response);
    if (!status.ok()) return ToStatus(status);
    return response;
  }

  // A request about a namespace of the tenant.
  template <typename Request>
  Request About(const std::string& ns) const {
    Request request;
    request.set_tenant(tenant_);
    request.set_namespace_(ns);
    return request;
  }

  // For calls that stream.
  v1::Cache::Stub& cache() { return stub<v1::Cache::Stub>(); }
  void SetDeadline(grpc::ClientContext* context) const;
  // With the exit codes that README.md promises: NOT_FOUND stays; INVALID_ARGUMENT,
  // FAILED_PRECONDITION and OUT_OF_RANGE become InvalidArgument. Messages are kept.
  absl::Status ToStatus(const grpc::Status& status) const;

  const std::string& tenant() const { return tenant_; }

 private:
  template <typename Stub>
  Stub& stub() {
    return *std::get<std::unique_ptr<Stub>>(stubs_);
  }

  std::string server_;
  std::string tenant_;
  int64_t timeout_ns_;
  std::tuple<std::unique_ptr<v1::Cache::Stub>, std::unique_ptr<v1::Admin::Stub>> stubs_;
};

// A command that asks one node.
class NodeCommand : public Command {
 public:
  absl::StatusOr<ExitCode> Run(const Context& context) final {
    Connection connection(context.globals);
    return Ask(&connection, context);
  }

 protected:
  virtual absl::StatusOr<ExitCode> Ask(Connection* connection, const Context& context) = 0;
};

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_NODE_CONNECTION_H_
