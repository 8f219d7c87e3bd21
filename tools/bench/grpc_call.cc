#include "tools/bench/grpc_call.h"

namespace quarry::bench {

std::shared_ptr<grpc::Channel> OpenChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

GrpcCall::GrpcCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& method) {
  call_ = grpc::GenericStub(channel).PrepareCall(&context_, method, &queue_);
  call_->StartCall(nullptr);
  Wait();
}

GrpcCall::~GrpcCall() {
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

bool GrpcCall::Wait() {
  void* tag = nullptr;
  bool ok = false;
  return queue_.Next(&tag, &ok) && ok;
}

bool GrpcCall::Write(const grpc::ByteBuffer& message) {
  call_->Write(message, nullptr);
  return Wait();
}

bool GrpcCall::WritesDone() {
  call_->WritesDone(nullptr);
  return Wait();
}

bool GrpcCall::Read(grpc::ByteBuffer* message) {
  call_->Read(message, nullptr);
  return Wait();
}

absl::Status GrpcCall::Finish() {
  grpc::Status status;
  call_->Finish(&status, nullptr);
  Wait();
  return FromGrpc(status);
}

}  // namespace quarry::bench
