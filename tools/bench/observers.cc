#include "tools/bench/observers.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <utility>

#include "quarry/v1/cache.grpc.pb.h"
#include "tools/bench/grpc_call.h"
#include "tools/bench/http_get.h"

namespace quarry::bench {
namespace {
constexpr std::chrono::seconds kPeriod(1);
}  // namespace

struct Observers::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  bool stopping = false;                   // guarded by mutex
  absl::Status failed;                     // guarded by mutex
  std::set<grpc::ClientContext*> watches;  // guarded by mutex
  std::atomic<uint64_t> scrapes{0};
  std::atomic<uint64_t> stats{0};
  std::atomic<uint64_t> events{0};
};

Observers::Observers(const GrpcOptions& options, std::string grpc, std::string metrics)
    : grpc_(std::move(grpc)), metrics_(std::move(metrics)), shared_(std::make_unique<Shared>()) {
  for (uint32_t i = 0; i < options.watchers; ++i) threads_.emplace_back([this] { Watch(); });
  if (!options.scrape) return;
  threads_.emplace_back([this] { Scrape(); });
  threads_.emplace_back([this] { PollStats(); });
}

Observers::~Observers() {
  Counts unused;
  Stop(&unused).IgnoreError();
}

absl::Status Observers::Stop(Counts* counts) {
  {
    std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->stopping = true;
    for (grpc::ClientContext* watch : shared_->watches) watch->TryCancel();
  }
  shared_->changed.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  *counts = {shared_->scrapes, shared_->stats, shared_->events};
  return shared_->failed;
}

bool Observers::Pause() {
  std::unique_lock<std::mutex> lock(shared_->mutex);
  return !shared_->changed.wait_for(lock, kPeriod, [this] { return shared_->stopping; });
}

void Observers::Failed(const absl::Status& status) {
  std::lock_guard<std::mutex> lock(shared_->mutex);
  if (shared_->failed.ok() && !shared_->stopping) shared_->failed = status;
}

void Observers::Watch() {
  const auto stub = v1::Cache::NewStub(OpenChannel(grpc_));
  grpc::ClientContext context;
  {
    std::lock_guard<std::mutex> lock(shared_->mutex);
    if (shared_->stopping) return;
    shared_->watches.insert(&context);
  }
  const auto watch = stub->Watch(&context, v1::WatchRequest());
  v1::WatchResponse message;
  while (watch->Read(&message)) {
    for (int i = 0; i < message.events_size(); ++i) {
      ++shared_->events;
      if (!Pause()) break;
    }
  }
  Failed(absl::UnavailableError("a watch ended"));
  {
    std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->watches.erase(&context);
  }
  watch->Finish();
}

void Observers::Scrape() {
  do {
    if (auto page = HttpGet(metrics_, "/metrics"); !page.ok()) return Failed(page.status());
    ++shared_->scrapes;
  } while (Pause());
}

void Observers::PollStats() {
  const auto stub = v1::Cache::NewStub(OpenChannel(grpc_));
  do {
    grpc::ClientContext context;
    v1::StatsResponse response;
    const grpc::Status status = stub->Stats(&context, {}, &response);
    if (!status.ok()) return Failed(FromGrpc(status));
    ++shared_->stats;
  } while (Pause());
}

}  // namespace quarry::bench
