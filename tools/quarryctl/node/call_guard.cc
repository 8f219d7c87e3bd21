#include "tools/quarryctl/node/call_guard.h"

namespace quarry::ctl {

CallGuard::CallGuard(grpc::ClientContext* call, Connection* connection, Signals* signals, int64_t timeout_ns)
    : call_(call), connection_(connection), signals_(signals), timeout_ns_(timeout_ns), thread_([this] { Run(); }) {}

CallGuard::~CallGuard() { Join(); }

void CallGuard::Join() {
  if (!thread_.joinable()) return;
  ended_ = true;
  signals_->Wake();
  thread_.join();
}

absl::Status CallGuard::failure() {
  Join();
  return failure_;
}

void CallGuard::Run() {
  while (!ended_ && !stopped_ && failure_.ok()) {
    if (IsStop(signals_->Wait(timeout_ns_))) {
      stopped_ = true;
    } else if (!ended_ && !answered_) {
      failure_ = connection_->ToStatus({grpc::StatusCode::DEADLINE_EXCEEDED, ""});
    } else if (!ended_) {
      failure_ = connection_->Call(&v1::Admin::Stub::GetHealth, v1::GetHealthRequest()).status();
    }
  }
  if (!ended_) call_->TryCancel();
}

}  // namespace quarry::ctl
