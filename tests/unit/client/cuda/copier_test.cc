// The copies alone, against a FAKE driver: which calls are made, in which order, and what becomes of errors.
#include "client/cuda/copier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/fake_cuda/fake_cuda.h"

namespace quarry::cuda {
namespace {

namespace fake = fakes::cuda;
using ::testing::HasSubstr;

class CopierTest : public ::testing::Test {
 protected:
  static constexpr size_t kHostBytes = 8 << 20;
  static constexpr std::byte kGap{0xee};

  void SetUp() override {
    ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
    fake::Reset();
    driver_ = Driver::Find();
    ASSERT_NE(driver_, nullptr);
    ASSERT_EQ(driver_->missing, "");
    Open(CopierOptions());
    ASSERT_TRUE(host_.Allocate(*driver_, copier_->context(), kHostBytes).ok());
    for (size_t i = 0; i < kHostBytes; ++i) host_.data()[i] = static_cast<std::byte>(i * 31 + i / 251);
  }
  void TearDown() override {
    fake::LetStreamsGo();
    // What still runs ends before its memory goes.
    if (copier_ != nullptr) {
      EXPECT_TRUE(Settle().ok());
    }
    for (const CUdeviceptr memory : memory_) cuMemFree(memory);
  }

  void Open(const CopierOptions& options, int device = 0) {
    const Outcome opened = Copier::Open(*driver_, device, options, &copier_);
    ASSERT_TRUE(opened.ok()) << opened.Describe(*driver_);
  }
  CUdeviceptr DeviceMemory(size_t bytes) {
    const ContextScope scope(*driver_, copier_->context());
    CUdeviceptr memory = 0;
    EXPECT_EQ(cuMemAlloc(&memory, bytes), CUDA_SUCCESS);
    const std::vector<std::byte> gap(bytes, kGap);
    EXPECT_EQ(cuMemcpyHtoD(memory, gap.data(), bytes), CUDA_SUCCESS);
    memory_.push_back(memory);
    return memory;
  }
  std::vector<std::byte> Read(CUdeviceptr memory, size_t bytes) {
    const ContextScope scope(*driver_, copier_->context());
    std::vector<std::byte> read(bytes);
    EXPECT_EQ(cuMemcpyDtoH(read.data(), memory, bytes), CUDA_SUCCESS);
    return read;
  }
  uint64_t host() const { return reinterpret_cast<uint64_t>(host_.data()); }
  CUstream own(Direction direction = Direction::kToDevice) const { return copier_->own_stream(direction); }

  // Queues all of it, and waits until it has run; how many tickets that took. 0: it failed.
  int Run(CopyBatch* batch, CUstream stream) {
    int tickets = 0;
    size_t ended = 0;
    std::vector<uint64_t> finished;
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!batch->queued() || ended < static_cast<size_t>(tickets)) {
      uint64_t ticket = 0;
      if (!batch->queued()) {
        const Outcome queued = copier_->Queue(batch, stream, &ticket);
        if (!queued.ok()) {
          ADD_FAILURE() << queued.Describe(*driver_);
          return 0;
        }
        if (ticket != 0) ++tickets;
      }
      finished.clear();
      const Outcome polled = copier_->Poll(&finished);
      if (!polled.ok() || std::chrono::steady_clock::now() > give_up) {
        ADD_FAILURE() << polled.Describe(*driver_);
        return 0;
      }
      ended += finished.size();
      if (finished.empty()) std::this_thread::yield();
    }
    return tickets;
  }
  // Waits until nothing is under way or Poll fails.
  Outcome Settle() const {
    std::vector<uint64_t> finished;
    Outcome outcome;
    while (outcome.ok() && !copier_->idle()) outcome = copier_->Poll(&finished);
    return outcome;
  }

  const Driver* driver_ = nullptr;
  std::unique_ptr<Copier> copier_;
  LockedMemory host_;
  std::vector<CUdeviceptr> memory_;
};

struct Layout {
  const char* name;
  uint64_t length;
  uint64_t stride;
  uint64_t count;
  uint64_t device_offset;  // of the first piece in an aligned allocation
  uint64_t host_offset;
};

class CopierLayoutTest : public CopierTest, public ::testing::WithParamInterface<std::tuple<Layout, uint64_t>> {};

TEST_P(CopierLayoutTest, EveryByteBothWaysInOneLaunchAndNoOther) {
  const auto& [layout, batch_copy_bytes] = GetParam();
  Open({.batch_copy_bytes = batch_copy_bytes});
  const bool by_kernel = batch_copy_bytes != 0;
  const uint64_t bytes = layout.device_offset + layout.stride * layout.count + 999;
  const CUdeviceptr device = DeviceMemory(bytes);
  CopyBatch in;
  in.Add(Direction::kToDevice, device + layout.device_offset, host() + layout.host_offset, layout.length, layout.stride,
         layout.count);
  EXPECT_EQ(in.bytes(), layout.length * layout.count);
  fake::Reset();
  EXPECT_EQ(Run(&in, own()), 1);
  EXPECT_EQ(fake::Calls("cuLaunchKernel"), by_kernel ? 1 : 0);
  EXPECT_EQ(fake::Calls("cuMemcpyBatchAsync"), by_kernel ? 0 : 1);

  std::vector<std::byte> expected(bytes, kGap);
  for (uint64_t i = 0; i < layout.count; ++i) {
    std::memcpy(expected.data() + layout.device_offset + i * layout.stride,
                host_.data() + layout.host_offset + i * layout.length, layout.length);
  }
  EXPECT_TRUE(Read(device, bytes) == expected);

  const std::vector<std::byte> before(host_.data(), host_.data() + kHostBytes);
  std::memset(host_.data(), 0, kHostBytes);
  CopyBatch out;
  out.Add(Direction::kFromDevice, device + layout.device_offset, host() + layout.host_offset, layout.length,
          layout.stride, layout.count);
  EXPECT_EQ(Run(&out, own(Direction::kFromDevice)), 1);
  const uint64_t copied = layout.length * layout.count;
  EXPECT_EQ(std::memcmp(host_.data() + layout.host_offset, before.data() + layout.host_offset, copied), 0);
  for (size_t i = 0; i < kHostBytes; ++i) {
    if (i >= layout.host_offset && i < layout.host_offset + copied) continue;
    ASSERT_EQ(host_.data()[i], std::byte{0}) << i;
  }
  EXPECT_EQ(fake::Faults(), "");
}

constexpr Layout kLayouts[] = {
    {"Llama8B", 64 << 10, 256 << 10, 32, 0, 0},
    {"TensorParallel8", 8 << 10, 40 << 10, 80, 512, 256},
    {"Mla", 72 << 10, 100 << 10, 61, 0, 0},
    {"OneBlock", 2 << 20, 2 << 20, 1, 0, 0},
    {"Odd", 7777, 9001, 33, 13, 5},
    {"SingleBytes", 1, 3, 1000, 1, 0},
    {"Adjoining", 1000, 1000, 100, 8, 0},
};

INSTANTIATE_TEST_SUITE_P(Layouts, CopierLayoutTest,
                         ::testing::Combine(::testing::ValuesIn(kLayouts), ::testing::Values(uint64_t{0}, UINT64_MAX)),
                         [](const auto& suite) {
                           return std::string(std::get<0>(suite.param).name) +
                                  (std::get<1>(suite.param) == 0 ? "ByBatchCopy" : "ByKernel");
                         });

TEST_F(CopierTest, LongPiecesGoByBatchCopyAndShortOnesByTheKernel) {
  const CUdeviceptr device = DeviceMemory(4 << 20);
  CopyBatch longer;
  longer.Add(Direction::kToDevice, device, host(), 256 << 10, 512 << 10, 4);
  CopyBatch shorter;
  shorter.Add(Direction::kToDevice, device, host(), 255 << 10, 512 << 10, 4);
  EXPECT_EQ(Run(&longer, own()), 1);
  EXPECT_EQ(fake::Calls("cuMemcpyBatchAsync"), 1);
  EXPECT_EQ(fake::Calls("cuLaunchKernel"), 0);
  EXPECT_EQ(Run(&shorter, own()), 1);
  EXPECT_EQ(fake::Calls("cuLaunchKernel"), 1);
}

TEST_F(CopierTest, TheLegacyStreamHasOnlyTheKernel) {
  const CUdeviceptr device = DeviceMemory(1 << 20);
  CopyBatch batch;
  batch.Add(Direction::kToDevice, device, host(), 1 << 20, 0, 1);
  EXPECT_EQ(Run(&batch, CU_STREAM_LEGACY), 1);
  EXPECT_EQ(fake::Calls("cuMemcpyBatchAsync"), 0);
  const auto read = Read(device, 1 << 20);
  EXPECT_EQ(std::memcmp(read.data(), host_.data(), 1 << 20), 0);
}

TEST_F(CopierTest, ABatchOfMorePiecesThanDescriptorsIsQueuedBitByBit) {
  Open({.descriptor_bytes = 4096});  // 170 of them, 85 a launch
  const CUdeviceptr device = DeviceMemory(3000 * 3);
  CopyBatch batch;
  batch.Add(Direction::kToDevice, device, host(), 2, 3, 3000);
  EXPECT_EQ(Run(&batch, own()), (3000 + 84) / 85);
  const auto read = Read(device, 9000);
  for (size_t i = 0; i < 3000; ++i) {
    ASSERT_EQ(read[3 * i], host_.data()[2 * i]) << i;
    ASSERT_EQ(read[3 * i + 1], host_.data()[2 * i + 1]) << i;
    ASSERT_EQ(read[3 * i + 2], kGap) << i;
  }
}

TEST_F(CopierTest, WithoutDescriptorsABatchWaitsUntilOthersHaveRun) {
  Open({.descriptor_bytes = 4096});
  const CUdeviceptr device = DeviceMemory(9000);
  fake::HoldStreams();
  CopyBatch batch;
  batch.Add(Direction::kToDevice, device, host(), 2, 3, 3000);
  uint64_t first = 0;
  ASSERT_TRUE(copier_->Queue(&batch, own(), &first).ok());
  EXPECT_NE(first, 0u);
  uint64_t ticket = first;
  int queued = 1;
  while (ticket != 0) {
    ASSERT_TRUE(copier_->Queue(&batch, own(), &ticket).ok());
    if (ticket != 0) ++queued;
  }
  EXPECT_LT(queued, 4);
  EXPECT_FALSE(batch.queued());
  fake::LetStreamsGo();
  EXPECT_GT(Run(&batch, own()), 0);
}

TEST_F(CopierTest, WhatStandsStillOnOneStreamDoesNotKeepAnotherBack) {
  const CUdeviceptr device = DeviceMemory(2000);
  CUstream other = nullptr;
  {
    const ContextScope scope(*driver_, copier_->context());
    ASSERT_EQ(cuStreamCreate(&other, 0), CUDA_SUCCESS);
  }
  fake::HoldStreams();
  CopyBatch held;
  held.Add(Direction::kToDevice, device, host(), 1000, 0, 1);
  CopyBatch passes;
  passes.Add(Direction::kToDevice, device + 1000, host() + 1000, 1000, 0, 1);
  uint64_t held_ticket = 0;
  uint64_t passing_ticket = 0;
  ASSERT_TRUE(copier_->Queue(&held, own(), &held_ticket).ok());
  ASSERT_TRUE(copier_->Queue(&passes, other, &passing_ticket).ok());
  fake::LetRun(other, 2);  // the kernel and its event
  std::vector<uint64_t> finished;
  while (finished.empty()) ASSERT_TRUE(copier_->Poll(&finished).ok());
  EXPECT_EQ(finished, std::vector<uint64_t>{passing_ticket});
  EXPECT_FALSE(copier_->idle());
  fake::LetStreamsGo();
  EXPECT_TRUE(Settle().ok());
  const ContextScope scope(*driver_, copier_->context());
  EXPECT_EQ(cuStreamDestroy(other), CUDA_SUCCESS);
}

TEST_F(CopierTest, AStreamThatIsCapturedIsRefusedAndItsCaptureGoesOn) {
  const CUdeviceptr device = DeviceMemory(1000);
  CUstream stream = nullptr;
  const ContextScope scope(*driver_, copier_->context());
  ASSERT_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  CopyBatch batch;
  batch.Add(Direction::kToDevice, device, host(), 1000, 0, 1);
  uint64_t ticket = 1;
  EXPECT_EQ(copier_->Queue(&batch, stream, &ticket).result(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(ticket, 0u);
  // Another stream's copies run and are polled meanwhile.
  EXPECT_EQ(Run(&batch, own()), 1);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(fake::Faults(), "");
  EXPECT_EQ(cuStreamDestroy(stream), CUDA_SUCCESS);
}

TEST_F(CopierTest, ACallThatFailsIsNamedAndLeavesNothingQueued) {
  const CUdeviceptr device = DeviceMemory(4 << 20);
  for (const char* function : {"cuLaunchKernel", "cuMemcpyBatchAsync", "cuEventRecord", "cuStreamIsCapturing"}) {
    SCOPED_TRACE(function);
    CopyBatch batch;
    const bool by_kernel = std::string(function) != "cuMemcpyBatchAsync";
    batch.Add(Direction::kToDevice, device, host(), by_kernel ? 1000 : 1 << 20, 2 << 20, 2);
    fake::FailCall(function, 0, CUDA_ERROR_OUT_OF_MEMORY);
    uint64_t ticket = 1;
    const Outcome queued = copier_->Queue(&batch, own(), &ticket);
    EXPECT_EQ(queued.Describe(*driver_), std::string(function) + ": CUDA_ERROR_OUT_OF_MEMORY (said by a fake driver)");
    EXPECT_EQ(ticket, 0u);
    EXPECT_TRUE(copier_->idle());
  }
  CopyBatch batch;
  batch.Add(Direction::kToDevice, device, host(), 1000, 2000, 2);
  EXPECT_EQ(Run(&batch, own()), 1);
}

TEST_F(CopierTest, AStickyErrorEndsAllThatIsUnderWay) {
  const CUdeviceptr device = DeviceMemory(1000);
  fake::HoldStreams();
  CopyBatch batch;
  batch.Add(Direction::kToDevice, device, host(), 1000, 0, 1);
  uint64_t ticket = 0;
  ASSERT_TRUE(copier_->Queue(&batch, own(), &ticket).ok());
  fake::FailCall("cuEventQuery", 0, CUDA_ERROR_ILLEGAL_ADDRESS, /*sticky=*/true);
  const Outcome polled = Settle();
  EXPECT_THAT(polled.Describe(*driver_), HasSubstr("cuEventQuery: CUDA_ERROR_ILLEGAL_ADDRESS"));
  EXPECT_TRUE(copier_->idle());
  CopyBatch next;
  next.Add(Direction::kToDevice, device, host(), 1000, 0, 1);
  EXPECT_EQ(copier_->Queue(&next, own(), &ticket).result(), CUDA_ERROR_ILLEGAL_ADDRESS);
  fake::Reset();
}

TEST_F(CopierTest, ADeviceThatCannotBeOpenedIsAnErrorAndNothingStays) {
  copier_.reset();
  host_.Free();
  EXPECT_EQ(fake::LockedBytes(), 0u);
  for (const char* function : {"cuDevicePrimaryCtxRetain", "cuMemHostRegister", "cuModuleLoadData",
                               "cuModuleGetFunction", "cuFuncLoad", "cuStreamCreate"}) {
    SCOPED_TRACE(function);
    fake::FailCall(function, 0, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
    const Outcome opened = Copier::Open(*driver_, 1, CopierOptions(), &copier_);
    EXPECT_THAT(opened.Describe(*driver_), HasSubstr(std::string(function) + ": CUDA_ERROR_UNSUPPORTED_PTX_VERSION"));
    EXPECT_EQ(copier_, nullptr);
    EXPECT_EQ(fake::Retained(1), 0);
    EXPECT_EQ(fake::LockedBytes(), 0u);
  }
}

}  // namespace
}  // namespace quarry::cuda
