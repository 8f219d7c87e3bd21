// Everything at random at once on GPU memory: gets, puts and fetches, on streams and without,
// cancelled, late, with streams that stand still now and then and calls that fail. Against a FAKE
// CUDA driver.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/fake_cuda/fake_cuda.h"
#include "tests/integration/gpu_batch.h"
#include "tests/integration/private_server.h"

namespace quarry::testing {
namespace {

namespace fake = fakes::cuda;

class ClientGpuStressTest : public ::testing::Test {
 protected:
  static constexpr size_t kBytes = 100'000;
  static constexpr size_t kBlocks = 12;  // more than the ring takes
  static constexpr int kWorkers = 3;
  static constexpr int kOperations = kSanitized ? 40 : 150;  // of each
  static constexpr GpuLayout kLayout{kBytes, 7'000, 24, 8};

  static ClientOptions Options() {
    ClientOptions options;
    options.gpu_staging_bytes = 1 << 20;
    options.io_threads = 2;
    return options;
  }
  void TearDown() override {
    fake::LetStreamsGo();
    EXPECT_EQ(fake::Faults(), "");
    fake::Reset();
  }

  // One operation after the other, on GPU memory of its own.
  void Work(int worker, unsigned seed) {
    std::mt19937 random(seed);
    const int gpu = worker % fake::kDevices;
    const GpuStream stream(gpu);
    GpuBatch stored(peer_, gpu, 1, kBlocks, kLayout);
    CompletionQueue queue;
    for (int i = 0; i < kOperations; ++i) {
      const uint64_t fresh_id = 1000 + 1000 * static_cast<uint64_t>(worker) + static_cast<uint64_t>(i) * kBlocks;
      GpuBatch fresh(peer_, gpu, fresh_id, kBlocks, kLayout);
      void* const on = random() % 2 == 0 ? stream.get() : nullptr;
      const uint32_t deadline_ms = random() % 8 == 0 ? 1 + random() % 20 : kPatienceMs;
      stored.Clear();
      absl::StatusOr<OperationId> begun;
      const auto kind = random() % 4;
      if (kind == 0) {
        fresh.Fill();
        begun = peer_->PutAsync(peer_.ns(), fresh.Items(), {.deadline_ms = deadline_ms, .gpu_stream = on}, &queue, 0);
      } else if (kind == 1) {
        FetchOptions options;
        options.match.deadline_ms = deadline_ms;
        options.gpu_stream = on;
        const Chain chain = stored.AsChain();
        begun = peer_->FetchPrefixAsync(peer_.ns(), {&chain, 1}, {stored.Destinations()}, options, &queue, 0);
      } else {
        begun = peer_->GetAsync(peer_.ns(), stored.Items(), {.deadline_ms = deadline_ms, .gpu_stream = on}, &queue, 0);
      }
      EXPECT_TRUE(begun.ok() || absl::IsInternal(begun.status())) << begun.status();
      if (!begun.ok()) continue;
      if (random() % 4 == 0) {
        for (auto pause = random() % 2000; pause > 0; --pause) std::this_thread::yield();
        peer_->Cancel(*begun);
      }
      const Ended ended = WaitForEnd(&queue);
      if (ended.done.status.ok()) ++well_;
      if (kind == 0) continue;
      const auto& items = kind == 1 ? ended.done.fetch->transfer.items : ended.done.transfer->items;
      EXPECT_TRUE(stored.HoldsWhatIsSaid(items)) << ended.done.status;
    }
    stored.Clear();
    ++left_;
    // Nobody writes later to what has been released.
    while (left_ < kWorkers) std::this_thread::yield();
    EXPECT_TRUE(stored.Untouched());
  }

  // Holds streams up and lets them go, and makes calls fail, until the workers have left.
  void Disturb(unsigned seed) {
    std::mt19937 random(seed);
    const std::vector<std::string> calls = {"cuLaunchKernel", "cuEventRecord", "cuStreamIsCapturing"};
    while (left_ < kWorkers) {
      fake::HoldStreams();
      for (auto pause = random() % 500; pause > 0; --pause) std::this_thread::yield();
      if (random() % 8 == 0) fake::FailCall(calls[random() % calls.size()], random() % 3, CUDA_ERROR_OUT_OF_MEMORY);
      fake::LetStreamsGo();
      for (auto pause = random() % 2000; pause > 0; --pause) std::this_thread::yield();
    }
  }

  PrivateServer server_{"512MiB"};
  Peer peer_{server_.address(), PlainSpec(kBytes), Options()};
  std::atomic<int> left_{0};
  std::atomic<int> well_{0};
};

TEST_F(ClientGpuStressTest, EachOperationEndsOnceWithTheTruthAndNothingStays) {
  fake::Reset();
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  {
    GpuBatch stored(peer_, 0, 1, kBlocks, kLayout);
    ASSERT_TRUE(stored.Put());
  }
  std::vector<std::thread> threads;
  for (int worker = 0; worker < kWorkers; ++worker) {
    threads.emplace_back([this, worker, seed] { Work(worker, seed + static_cast<unsigned>(worker)); });
  }
  threads.emplace_back([this, seed] { Disturb(seed + kWorkers); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(well_, 0);
  EXPECT_TRUE(BecomesIdle(peer_));
  EXPECT_TRUE(server_.BecomesIdle(1));
  // All of the ring is there again.
  fake::Reset();
  GpuBatch stored(peer_, 0, 1, kBlocks, kLayout);
  EXPECT_TRUE(stored.ComesBack());
}

}  // namespace
}  // namespace quarry::testing
