// Calls on a channel whose messages are raw bytes, so that what is timed is the call and not
// the making of objects.
#ifndef QUARRY_TOOLS_BENCH_GRPC_CALL_H_
#define QUARRY_TOOLS_BENCH_GRPC_CALL_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/status.h"

namespace quarry::bench {

// With a connection of its own, and without proxies.
std::shared_ptr<grpc::Channel> OpenChannel(const std::string& address);

absl::Status FromGrpc(const grpc::Status& status);

// One call of `method`, e.g. "/quarry.v1.Cache/Get", on this thread alone.
class GrpcCall {
 public:
  GrpcCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& method);
  ~GrpcCall();
  GrpcCall(const GrpcCall&) = delete;
  GrpcCall& operator=(const GrpcCall&) = delete;

  // False: the call is over, and Finish tells why.
  bool Write(const grpc::ByteBuffer& message);
  bool WritesDone();
  bool Read(grpc::ByteBuffer* message);
  absl::Status Finish();

 private:
  bool Wait();

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_GRPC_CALL_H_
