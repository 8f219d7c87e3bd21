// What all sessions of a server share of UCX: the context, and a worker for each event loop.
#ifndef QUARRY_COMMON_TRANSPORT_UCX_HOST_H_
#define QUARRY_COMMON_TRANSPORT_UCX_HOST_H_

#include <map>
#include <memory>
#include <mutex>

#include "absl/status/statusor.h"
#include "common/net/event_loop.h"
#include "common/transport/ucx/context.h"
#include "common/transport/ucx/worker.h"

namespace quarry::transport::ucx {

// Thread-safe.
class Host : public UcxHost {
 public:
  static absl::StatusOr<std::shared_ptr<UcxHost>> Create(const UcxOptions& options);

  explicit Host(std::shared_ptr<Context> context) : context_(std::move(context)) {}

  Context* context() const { return context_.get(); }
  void Shutdown() override;
  std::string version() const override { return ToString(context_->api().version); }
  // Made when it is first wanted, on the loop's thread.
  absl::StatusOr<std::shared_ptr<Worker>> WorkerOf(EventLoop* loop);

 private:
  const std::shared_ptr<Context> context_;
  std::mutex mutex_;
  std::map<EventLoop*, std::shared_ptr<Worker>> workers_;  // guarded by mutex_
};

}  // namespace quarry::transport::ucx

#endif  // QUARRY_COMMON_TRANSPORT_UCX_HOST_H_
