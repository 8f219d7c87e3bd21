#include "tools/bench/churn.h"

#include <chrono>
#include <utility>

#include "common/clock.h"
#include "tools/bench/block_content.h"
#include "tools/bench/workload.h"

namespace quarry::bench {
namespace {
constexpr uint64_t kBlockBytes = 4 << 10;
constexpr uint32_t kChurnTokensPerBlock = 8;  // a namespace of its own
}  // namespace

absl::StatusOr<std::unique_ptr<Churn>> Churn::Start(const std::string& server, uint32_t blocks_per_s) {
  std::unique_ptr<Churn> churn(new Churn);
  auto client = Connect(TransferOptions{}, server);
  if (!client.ok()) return client.status();
  churn->client_ = *std::move(client);
  auto ns = OpenBenchNamespace(churn->client_.get(), kBlockBytes, kChurnTokensPerBlock);
  if (!ns.ok()) return ns.status();
  churn->ns_ = *std::move(ns);
  churn->block_.resize(kBlockBytes);
  auto region = churn->client_->RegisterMemory(churn->block_.data(), kBlockBytes);
  if (!region.ok()) return region.status();
  churn->region_ = *std::move(region);
  churn->thread_ = std::thread([raw = churn.get(), blocks_per_s] { raw->Run(blocks_per_s); });
  return churn;
}

Churn::~Churn() { Stop().IgnoreError(); }

absl::Status Churn::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  return failed_;
}

void Churn::Run(uint32_t blocks_per_s) {
  const std::chrono::nanoseconds period(std::chrono::seconds(1) / std::max(1u, blocks_per_s));
  uint64_t id = Mix(static_cast<uint64_t>(Clock::Real()->NowNs()));
  std::unique_lock<std::mutex> lock(mutex_);
  while (!changed_.wait_for(lock, period, [this] { return stopping_; })) {
    const std::string hash = HashOf(id++);
    Item item;
    item.hash = hash;
    item.segments = {{.base = block_.data(), .length = kBlockBytes}};
    if (auto put = client_->Put(ns_, {item}); !put.ok()) {
      failed_ = put.status();
      return;
    }
  }
}

}  // namespace quarry::bench
