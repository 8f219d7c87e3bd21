#include "common/transport/ucx/host.h"

namespace quarry::transport::ucx {

absl::StatusOr<std::shared_ptr<UcxHost>> Host::Create(const UcxOptions& options) {
  auto context = Context::Create(options);
  if (!context.ok()) return context.status();
  return std::shared_ptr<UcxHost>(new Host(*std::move(context)));
}

void Host::Shutdown() {
  std::map<EventLoop*, std::shared_ptr<Worker>> workers;
  {
    std::lock_guard lock(mutex_);
    workers.swap(workers_);
  }
  for (const auto& [loop, worker] : workers) {
    loop->Run([&worker = worker] { worker->Shutdown(); });
  }
}

absl::StatusOr<std::shared_ptr<Worker>> Host::WorkerOf(EventLoop* loop) {
  {
    std::lock_guard lock(mutex_);
    if (const auto found = workers_.find(loop); found != workers_.end()) return found->second;
  }
  // Nobody else makes one for this loop: this is its thread.
  auto worker = Worker::Create(context_, loop);
  if (!worker.ok()) return worker.status();
  std::lock_guard lock(mutex_);
  return workers_.emplace(loop, *std::move(worker)).first->second;
}

}  // namespace quarry::transport::ucx
