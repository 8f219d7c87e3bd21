// How operations on GPU memory end early: cancelled, late, without their server, with errors of
// CUDA, with their client. Against a FAKE CUDA driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "tests/fakes/fake_cuda/fake_cuda.h"
#include "tests/integration/gpu_batch.h"
#include "tests/integration/private_server.h"
#include "tests/integration/relay.h"

namespace quarry::testing {
namespace {

namespace fake = fakes::cuda;
using ::testing::HasSubstr;

class ClientGpuEndsTest : public ::testing::Test {
 protected:
  static constexpr size_t kBytes = 100'000;
  static constexpr size_t kBlocks = 10;
  static constexpr uint32_t kSoonMs = kSanitized ? 5'000 : 1'000;  // a deadline that is to pass
  static constexpr GpuLayout kLayout{kBytes, 10'000, 24, 8};

  void SetUp() override {
    fake::Reset();
    ASSERT_TRUE(blocks_->Put());
    blocks_->Clear();
    fake::Reset();
  }
  void TearDown() override {
    fake::LetStreamsGo();
    EXPECT_EQ(fake::Faults(), "");
    fake::Reset();
  }
  static ClientOptions Options() {
    ClientOptions options;
    options.gpu_staging_bytes = 4 << 20;
    return options;
  }
  OperationId BeginGet(const GetOptions& options) {
    const auto begun = (*peer_)->GetAsync(peer_->ns(), blocks_->Items(), options, &queue_, 0);
    EXPECT_TRUE(begun.ok()) << begun.status();
    return begun.ok() ? *begun : 0;
  }
  Completion Next() {
    auto completion = queue_.Next(kPatienceMs);
    if (completion.has_value()) return *completion;
    ADD_FAILURE() << "no completion";
    return {};
  }
  static void WaitForCopies(int calls) {
    while (fake::Calls("cuEventRecord") < calls) std::this_thread::yield();
  }
  // From kDone to kReleased, no sooner than copies have run; nothing is written later.
  void ExpectHeldUntilCopiesHaveRun(const Completion& done) {
    EXPECT_TRUE(done.held);
    EXPECT_EQ((*peer_)->counters().held, 1u);
    EXPECT_FALSE(queue_.TryNext().has_value());
    fake::LetStreamsGo();
    EXPECT_EQ(Next().kind, Completion::Kind::kReleased);
    blocks_->Clear();
    EXPECT_TRUE(BecomesIdle(*peer_));
    EXPECT_TRUE(blocks_->Untouched());
  }

  std::unique_ptr<PrivateServer> server_ = std::make_unique<PrivateServer>("256MiB");
  std::optional<Relay> relay_{server_->address()};
  std::optional<Peer> peer_{std::in_place, relay_->address(), PlainSpec(kBytes), Options()};
  std::optional<GpuBatch> blocks_{std::in_place, *peer_, 0, 1, kBlocks, kLayout};
  CompletionQueue queue_;
};

TEST_F(ClientGpuEndsTest, ACancelWhileCopiesAreQueuedHoldsTheBuffersUntilTheyHaveRun) {
  fake::HoldStreams();
  const OperationId get = BeginGet({});
  WaitForCopies(1);
  (*peer_)->Cancel(get);
  const Completion done = Next();
  EXPECT_TRUE(absl::IsCancelled(done.status)) << done.status;
  EXPECT_EQ(done.transfer->bytes, 0u);
  for (const ItemResult& item : done.transfer->items) EXPECT_EQ(item.status, done.status);
  ExpectHeldUntilCopiesHaveRun(done);
  EXPECT_TRUE(blocks_->ComesBack());
}

TEST_F(ClientGpuEndsTest, ACancelOfAPutWhoseSourceIsStillToBeRead) {
  GpuBatch fresh(*peer_, 0, 500, kBlocks, kLayout);
  fresh.Fill();
  fake::Reset();
  fake::HoldStreams();
  const auto put = (*peer_)->PutAsync(peer_->ns(), fresh.Items(), {}, &queue_, 0);
  ASSERT_TRUE(put.ok());
  WaitForCopies(1);
  (*peer_)->Cancel(*put);
  const Completion done = Next();
  EXPECT_TRUE(absl::IsCancelled(done.status)) << done.status;
  ExpectHeldUntilCopiesHaveRun(done);
  EXPECT_TRUE(fresh.Put());  // nothing of it had been offered
}

TEST_F(ClientGpuEndsTest, TheDeadlinePassesWhileCopiesAreQueued) {
  fake::HoldStreams();
  BeginGet({.deadline_ms = kSoonMs});
  const Completion done = Next();
  EXPECT_TRUE(absl::IsDeadlineExceeded(done.status)) << done.status;
  ExpectHeldUntilCopiesHaveRun(done);
}

TEST_F(ClientGpuEndsTest, TheDeadlinePassesWhileItWaitsForRoomInTheRing) {
  GpuBatch many(*peer_, 0, 1000, 60, kLayout);
  many.Fill();
  fake::Reset();
  fake::HoldStreams();
  CompletionQueue of_many;
  ASSERT_TRUE((*peer_)->PutAsync(peer_->ns(), many.Items(), {}, &of_many, 0).ok());
  WaitForCopies(9);  // the ring is full of parts that stand still: eight of five items, and one of one
  BeginGet({.deadline_ms = kSoonMs});
  const Completion done = Next();
  EXPECT_TRUE(absl::IsDeadlineExceeded(done.status)) << done.status;
  EXPECT_FALSE(done.held);
  fake::LetStreamsGo();
  EXPECT_TRUE(WaitForEnd(&of_many).done.status.ok());
  EXPECT_TRUE(blocks_->Untouched());
}

TEST_F(ClientGpuEndsTest, AServerThatStandsStillCostsTheDeadlineAndNothingIsHeld) {
  server_->Signal(SIGSTOP);
  BeginGet({.deadline_ms = kSoonMs});
  const Completion done = Next();
  EXPECT_TRUE(absl::IsDeadlineExceeded(done.status)) << done.status;
  EXPECT_FALSE(done.held);
  server_->Signal(SIGCONT);
  EXPECT_TRUE(BecomesIdle(*peer_));
  EXPECT_TRUE(blocks_->Untouched());
  EXPECT_TRUE(blocks_->ComesBack());
}

TEST_F(ClientGpuEndsTest, AServerThatDiesWhileCopiesAreQueued) {
  fake::HoldStreams();
  relay_->Limit(Relay::kToClient, 5 * kBytes / 2);
  BeginGet({.item_completions = true});
  relay_->WaitUntilHeldUp(Relay::kToClient);
  WaitForCopies(1);
  server_->Kill();
  Completion done = Next();
  EXPECT_EQ(done.kind, Completion::Kind::kDone);
  EXPECT_TRUE(absl::IsUnavailable(done.status)) << done.status;
  ExpectHeldUntilCopiesHaveRun(done);
}

TEST_F(ClientGpuEndsTest, WithAnotherServerInItsPlaceItGoesOn) {
  const std::string address = server_->address();
  server_->Kill();
  server_ = std::make_unique<PrivateServer>("256MiB", PrivateServer::Flags{.transfer = address});
  ::testing::AssertionResult put = ::testing::AssertionFailure();
  for (int i = 0; i < 1200 && !put; ++i) {
    put = blocks_->Put();
    if (!put) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_TRUE(put);
  EXPECT_TRUE(blocks_->ComesBack());
}

TEST_F(ClientGpuEndsTest, TheClientsEndWaitsForCopiesThatAreQueued) {
  GpuStream stream;
  fake::HoldStreams();
  BeginGet({.gpu_stream = stream.get()});
  EXPECT_TRUE(Next().held);
  GpuBatch other(*peer_, 0, 1, kBlocks, kLayout);
  const auto got = (*peer_)->GetAsync(peer_->ns(), other.Items(), {}, &queue_, 1);
  ASSERT_TRUE(got.ok());
  std::atomic<bool> left{false};
  std::thread leaver([&] {
    peer_->Leave();
    left = true;
  });
  const Completion done = Next();
  EXPECT_TRUE(absl::IsCancelled(done.status)) << done.status;
  EXPECT_FALSE(left);
  EXPECT_TRUE(blocks_->Untouched());
  fake::LetStreamsGo();
  leaver.join();
  EXPECT_EQ(Next().kind, Completion::Kind::kReleased);
  if (done.held) {
    EXPECT_EQ(Next().kind, Completion::Kind::kReleased);
  }
  EXPECT_FALSE(queue_.TryNext().has_value());
  EXPECT_TRUE(blocks_->HoldsAll());
  EXPECT_EQ(fake::LockedBytes(), 0u);
  EXPECT_EQ(fake::Retained(0), 0);
}

// ---------------------------------------------------------------- errors of CUDA

class ClientGpuErrorsTest : public ClientGpuEndsTest, public ::testing::WithParamInterface<std::string> {};

TEST_P(ClientGpuErrorsTest, AnErrorIsNamedEndsItsOperationAndNoOther) {
  fake::FailCall(GetParam(), 0, CUDA_ERROR_OUT_OF_MEMORY);
  BeginGet({});
  const Completion done = Next();
  EXPECT_TRUE(absl::IsInternal(done.status)) << done.status;
  EXPECT_THAT(std::string(done.status.message()), HasSubstr(GetParam() + ": CUDA_ERROR_OUT_OF_MEMORY"));
  if (done.held) {
    EXPECT_EQ(Next().kind, Completion::Kind::kReleased);
  }
  EXPECT_TRUE(BecomesIdle(*peer_));
  EXPECT_TRUE(blocks_->ComesBack());
  GpuBatch fresh(*peer_, 0, 500, kBlocks, kLayout);
  fake::FailCall(GetParam(), 0, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(fresh.Put());
  EXPECT_TRUE(fresh.Put());
}

INSTANTIATE_TEST_SUITE_P(Calls, ClientGpuErrorsTest,
                         ::testing::Values("cuLaunchKernel", "cuEventRecord", "cuStreamIsCapturing"),
                         [](const auto& suite) { return suite.param; });

TEST_F(ClientGpuEndsTest, AFailedGpuEndsAllOnItAndNothingOnAnother) {
  GpuBatch other_gpu(*peer_, 1, 1, kBlocks, kLayout);
  GpuBatch second(*peer_, 0, 1, kBlocks, kLayout);
  fake::Reset();
  fake::HoldStreams();
  BeginGet({});
  WaitForCopies(1);
  const auto get = (*peer_)->GetAsync(peer_->ns(), second.Items(), {}, &queue_, 1);
  ASSERT_TRUE(get.ok());
  fake::FailCall("cuEventQuery", 0, CUDA_ERROR_ILLEGAL_ADDRESS, /*sticky=*/true);
  int done = 0;
  while (done < 2) {
    const Completion completion = Next();
    if (completion.kind != Completion::Kind::kDone) continue;
    ++done;
    EXPECT_THAT(completion.status.ToString(), HasSubstr("INTERNAL: GPU memory: cu"));
    EXPECT_THAT(completion.status.ToString(), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  }
  EXPECT_TRUE(BecomesIdle(*peer_));  // released, though its streams stand still
  fake::LetStreamsGo();
  const absl::Status refused = (*peer_)->Get(peer_->ns(), blocks_->Items()).status();
  EXPECT_THAT(refused.ToString(), HasSubstr("cuEventQuery: CUDA_ERROR_ILLEGAL_ADDRESS"));
  EXPECT_TRUE(other_gpu.ComesBack());
  fake::Reset();  // the memory can be freed
}

TEST_F(ClientGpuEndsTest, AnErrorThatDoesNotEndTheContextHoldsTheBuffersUntilCopiesHaveRun) {
  fake::HoldStreams();
  fake::FailCall("cuEventQuery", 0, CUDA_ERROR_INVALID_HANDLE);
  BeginGet({});
  while (fake::Calls("cuCtxSynchronize") == 0) std::this_thread::yield();
  EXPECT_FALSE(queue_.TryNext().has_value());
  fake::LetStreamsGo();
  const Completion done = Next();
  EXPECT_TRUE(absl::IsInternal(done.status)) << done.status;
  EXPECT_TRUE(BecomesIdle(*peer_));
}

TEST_F(ClientGpuEndsTest, MemoryThatCannotBePreparedIsRefusedAndCanBeOfferedAgain) {
  Peer other(server_->address(), PlainSpec(kBytes), Options());
  for (const char* call : {"cuPointerGetAttributes", "cuMemHostRegister", "cuModuleLoadData", "cuStreamCreate"}) {
    fake::FailCall(call, 0, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
    const auto region = other->RegisterMemory(blocks_->base(), blocks_->bytes());
    EXPECT_TRUE(absl::IsInternal(region.status())) << region.status();
    EXPECT_THAT(std::string(region.status().message()),
                HasSubstr(std::string(call) + ": CUDA_ERROR_UNSUPPORTED_PTX_VERSION"));
  }
  EXPECT_TRUE(other->RegisterMemory(blocks_->base(), blocks_->bytes()).ok());
}

}  // namespace
}  // namespace quarry::testing
