// Copies on streams of the caller's: what kDone, kReleased and events say, and which streams are
// refused. Against a FAKE CUDA driver that can hold its streams up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/fake_cuda/fake_cuda.h"
#include "tests/integration/gpu_batch.h"
#include "tests/integration/private_server.h"

namespace quarry::testing {
namespace {

namespace fake = fakes::cuda;
using ::testing::HasSubstr;

class ClientGpuStreamTest : public ::testing::Test {
 protected:
  static constexpr size_t kBytes = 100'000;
  static constexpr size_t kBlocks = 10;
  static constexpr uint64_t kStagingBytes = 4 << 20;
  static constexpr GpuLayout kLayout{kBytes, 10'000, 24, 8};

  void SetUp() override {
    fake::Reset();
    ASSERT_TRUE(blocks_.Put());
    blocks_.Clear();
  }
  void TearDown() override {
    fake::LetStreamsGo();
    EXPECT_EQ(fake::Faults(), "");
    EXPECT_TRUE(BecomesIdle(peer_));
    fake::Reset();
  }
  static ClientOptions Options() {
    ClientOptions options;
    options.gpu_staging_bytes = kStagingBytes;
    return options;
  }
  GetOptions OnStream() const { return {.gpu_stream = stream_.get(), .gpu_event = stream_.event()}; }
  OperationId BeginGet(const GetOptions& options) {
    const auto begun = peer_->GetAsync(peer_.ns(), blocks_.Items(), options, &queue_, 0);
    EXPECT_TRUE(begun.ok()) << begun.status();
    return begun.ok() ? *begun : 0;
  }
  Completion Next() {
    auto completion = queue_.Next(kPatienceMs);
    if (completion.has_value()) return *completion;
    ADD_FAILURE() << "no completion";
    return {};
  }
  // Until so many copies have been queued since Reset.
  static void WaitForCopies(int calls) {
    while (fake::Calls("cuLaunchKernel") < calls) std::this_thread::yield();
  }
  std::string RefusalOf(const GetOptions& options) {
    const absl::Status get = peer_->Get(peer_.ns(), blocks_.Items(), options).status();
    const absl::Status put = peer_->Put(peer_.ns(), blocks_.Items(), {.gpu_stream = options.gpu_stream}).status();
    EXPECT_EQ(get, put);
    return get.ToString();
  }

  PrivateServer server_{"256MiB"};
  Peer peer_{server_.address(), PlainSpec(kBytes), Options()};
  GpuBatch blocks_{peer_, 0, 1, kBlocks, kLayout};
  GpuStream stream_;
  CompletionQueue queue_;
};

TEST_F(ClientGpuStreamTest, AGetIsDoneWhenItsCopiesAreQueuedAndReleasedWhenTheyHaveRun) {
  fake::HoldStreams();
  BeginGet(OnStream());
  const Completion done = Next();
  EXPECT_EQ(done.kind, Completion::Kind::kDone);
  EXPECT_TRUE(done.status.ok()) << done.status;
  EXPECT_TRUE(done.held);
  EXPECT_EQ(done.transfer->bytes, kBlocks * kBytes);
  EXPECT_EQ(peer_->counters().held, 1u);
  EXPECT_FALSE(stream_.EventIsReached());
  EXPECT_TRUE(blocks_.Untouched());
  EXPECT_FALSE(queue_.TryNext().has_value());
  fake::LetStreamsGo();
  EXPECT_EQ(Next().kind, Completion::Kind::kReleased);
  EXPECT_TRUE(blocks_.HoldsAll());
  stream_.Synchronize();
  EXPECT_TRUE(stream_.EventIsReached());
}

TEST_F(ClientGpuStreamTest, LaterWorkOnTheStreamSeesTheBytesOfAGetThatIsDone) {
  const size_t bytes = blocks_.bytes();
  std::vector<std::byte> read(bytes);
  const GpuScope scope(0);
  ASSERT_EQ(cuMemHostRegister(read.data(), bytes, CU_MEMHOSTREGISTER_PORTABLE), CUDA_SUCCESS);
  fake::HoldStreams();
  BeginGet(OnStream());
  ASSERT_TRUE(Next().held);
  ASSERT_EQ(cuMemcpyDtoHAsync(read.data(), reinterpret_cast<CUdeviceptr>(blocks_.base()), bytes, stream_.get()),
            CUDA_SUCCESS);
  fake::LetStreamsGo();
  stream_.Synchronize();
  EXPECT_TRUE(read == blocks_.Image(0, kBlocks));
  EXPECT_EQ(Next().kind, Completion::Kind::kReleased);
  cuMemHostUnregister(read.data());
}

TEST_F(ClientGpuStreamTest, AnotherStreamThatWaitsForTheEventSeesTheBytes) {
  const size_t bytes = blocks_.bytes();
  std::vector<std::byte> read(bytes);
  const GpuStream other;
  const GpuScope scope(0);
  ASSERT_EQ(cuMemHostRegister(read.data(), bytes, CU_MEMHOSTREGISTER_PORTABLE), CUDA_SUCCESS);
  fake::HoldStreams();
  BeginGet(OnStream());
  ASSERT_TRUE(Next().held);
  ASSERT_EQ(cuStreamWaitEvent(other.get(), stream_.event(), 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoHAsync(read.data(), reinterpret_cast<CUdeviceptr>(blocks_.base()), bytes, other.get()),
            CUDA_SUCCESS);
  fake::LetStreamsGo();
  other.Synchronize();
  EXPECT_TRUE(read == blocks_.Image(0, kBlocks));
  EXPECT_EQ(Next().kind, Completion::Kind::kReleased);
  cuMemHostUnregister(read.data());
}

TEST_F(ClientGpuStreamTest, WithoutAStreamAGetIsDoneWhenItsCopiesHaveRun) {
  fake::Reset();
  fake::HoldStreams();
  BeginGet({.item_completions = true});
  WaitForCopies(1);
  EXPECT_FALSE(queue_.TryNext().has_value());
  EXPECT_TRUE(blocks_.Untouched());
  fake::LetStreamsGo();
  const Ended ended = WaitForEnd(&queue_);
  EXPECT_EQ(ended.items.size(), kBlocks);
  EXPECT_TRUE(ended.done.status.ok());
  EXPECT_FALSE(ended.done.held);
  EXPECT_TRUE(blocks_.HoldsAll());
}

TEST_F(ClientGpuStreamTest, AnEventWithoutAStreamIsReachedWhenTheGetIsDone) {
  BeginGet({.gpu_event = stream_.event()});
  EXPECT_TRUE(Next().status.ok());
  const GpuScope scope(0);
  const GpuStream other;
  ASSERT_EQ(cuStreamWaitEvent(other.get(), stream_.event(), 0), CUDA_SUCCESS);
  other.Synchronize();
  EXPECT_TRUE(stream_.EventIsReached());
}

TEST_F(ClientGpuStreamTest, APutReadsBehindWhatIsOnItsStream) {
  GpuBatch fresh(peer_, 0, 500, kBlocks, kLayout);
  fake::Reset();
  Bytes image = fresh.Image(0, kBlocks);
  const GpuScope scope(0);
  ASSERT_EQ(cuMemHostRegister(image.data(), image.size(), CU_MEMHOSTREGISTER_PORTABLE), CUDA_SUCCESS);
  fake::HoldStreams();
  ASSERT_EQ(cuMemcpyHtoDAsync(reinterpret_cast<CUdeviceptr>(fresh.base()), image.data(), image.size(), stream_.get()),
            CUDA_SUCCESS);
  ASSERT_TRUE(peer_->PutAsync(peer_.ns(), fresh.Items(), {.gpu_stream = stream_.get()}, &queue_, 0).ok());
  WaitForCopies(1);
  fake::LetStreamsGo();
  const Completion done = Next();
  EXPECT_TRUE(done.status.ok()) << done.status;
  EXPECT_FALSE(done.held);
  EXPECT_EQ(done.transfer->bytes, kBlocks * kBytes);
  EXPECT_TRUE(fresh.ComesBack());
  cuMemHostUnregister(image.data());
}

TEST_F(ClientGpuStreamTest, TheLegacyDefaultStreamIsAStreamToo) {
  EXPECT_TRUE(blocks_.ComesBack({.gpu_stream = CU_STREAM_LEGACY}));
  GpuBatch fresh(peer_, 0, 500, kBlocks, kLayout);
  EXPECT_TRUE(fresh.Put({.gpu_stream = CU_STREAM_LEGACY}));
  EXPECT_TRUE(fresh.ComesBack());
}

TEST_F(ClientGpuStreamTest, StreamsOfOtherContextsAndThreadsAreRefused) {
  EXPECT_THAT(RefusalOf({.gpu_stream = CU_STREAM_PER_THREAD}),
              HasSubstr("INVALID_ARGUMENT: gpu_stream: CU_STREAM_PER"));
  const GpuStream other_gpu(1);
  EXPECT_THAT(RefusalOf({.gpu_stream = other_gpu.get()}),
              HasSubstr("INVALID_ARGUMENT: gpu_stream: not of the primary context of GPU 0"));
  EXPECT_THAT(RefusalOf({.gpu_stream = fake::MakeForeignStream(0)}),
              HasSubstr("INVALID_ARGUMENT: gpu_stream: not of the primary context of GPU 0"));
}

TEST_F(ClientGpuStreamTest, AStreamThatIsCapturedIsRefusedAndOtherCapturesGoUnharmed) {
  const GpuStream other;
  for (const CUstream captured : {stream_.get(), other.get()}) {
    ASSERT_EQ(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  }
  EXPECT_THAT(RefusalOf(OnStream()), HasSubstr("FAILED_PRECONDITION: gpu_stream: is being captured"));
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(stream_.get(), &graph), CUDA_SUCCESS);
  // While the other one is captured still.
  EXPECT_TRUE(peer_->Get(peer_.ns(), blocks_.Items(), OnStream()).ok());
  EXPECT_TRUE(peer_->Get(peer_.ns(), blocks_.Items(), {}).ok());
  EXPECT_EQ(cuStreamEndCapture(other.get(), &graph), CUDA_SUCCESS);
  EXPECT_TRUE(blocks_.HoldsAll());
}

TEST_F(ClientGpuStreamTest, ACaptureThatBeginsUnderAnOperationEndsItAndGoesOn) {
  GpuBatch many(peer_, 0, 1000, 60, kLayout);
  many.Fill();
  fake::Reset();
  fake::HoldStreams();
  ASSERT_TRUE(peer_->PutAsync(peer_.ns(), many.Items(), {.gpu_stream = stream_.get()}, &queue_, 0).ok());
  // Eight parts of five items and one of one fill the ring while the stream stands still, each by one launch.
  while (fake::Calls("cuEventRecord") < 9) std::this_thread::yield();
  ASSERT_EQ(cuStreamBeginCapture(stream_.get(), CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  fake::LetStreamsGo();
  const Ended ended = WaitForEnd(&queue_);
  EXPECT_TRUE(absl::IsFailedPrecondition(ended.done.status)) << ended.done.status;
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(stream_.get(), &graph), CUDA_SUCCESS);
}

TEST_F(ClientGpuStreamTest, NoSlotIsUsedAgainBeforeTheCopyFromItHasRun) {
  GpuBatch others(peer_, 0, 1000, kBlocks, kLayout);
  ASSERT_TRUE(others.Put());
  others.Clear();
  fake::Reset();
  fake::HoldStreams();
  BeginGet(OnStream());
  ASSERT_TRUE(Next().held);
  // Its bytes lie in the ring still, and these come beside them.
  const int queued = fake::Calls("cuEventRecord");
  ASSERT_TRUE(peer_->GetAsync(peer_.ns(), others.Items(), {.gpu_stream = stream_.get()}, &queue_, 0).ok());
  ASSERT_TRUE(Next().held);
  EXPECT_GT(fake::Calls("cuEventRecord"), queued);
  fake::LetStreamsGo();
  EXPECT_EQ(Next().kind, Completion::Kind::kReleased);
  EXPECT_EQ(Next().kind, Completion::Kind::kReleased);
  EXPECT_TRUE(blocks_.HoldsAll());
  EXPECT_TRUE(others.HoldsAll());
}

TEST_F(ClientGpuStreamTest, CallersNeedNoContextAndKeepTheirOwn) {
  CUcontext current = nullptr;
  ASSERT_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, nullptr);
  EXPECT_TRUE(peer_->Get(peer_.ns(), blocks_.Items(), OnStream()).ok());
  ASSERT_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, nullptr);
  const GpuScope other(1);
  CUcontext of_other = nullptr;
  ASSERT_EQ(cuCtxGetCurrent(&of_other), CUDA_SUCCESS);
  EXPECT_TRUE(peer_->Get(peer_.ns(), blocks_.Items(), OnStream()).ok());
  ASSERT_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, of_other);
}

TEST_F(ClientGpuStreamTest, ASmallOperationIsNotKeptBackByALargeOneBeforeIt) {
  GpuBatch many(peer_, 0, 1000, 120, kLayout);  // three times the ring
  ASSERT_TRUE(many.Put());
  many.Clear();
  fake::Reset();
  fake::HoldStreams();
  const auto large = peer_->GetAsync(peer_.ns(), many.Items(), {}, &queue_, 0);
  ASSERT_TRUE(large.ok());
  WaitForCopies(1);
  const OperationId small = BeginGet({});
  fake::LetStreamsGo();
  const Completion first = Next();
  const Completion second = Next();
  EXPECT_EQ(first.operation, small);
  EXPECT_EQ(second.operation, *large);
  EXPECT_TRUE(first.status.ok() && second.status.ok()) << first.status << second.status;
  EXPECT_TRUE(many.HoldsAll());
  EXPECT_TRUE(blocks_.HoldsAll());
}

}  // namespace
}  // namespace quarry::testing
