#include "tests/gpu/checks.h"

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "client/cuda/copier.h"
#include "client/cuda/page_lock.h"
#include "tests/gpu/layouts.h"

namespace quarry::gpu_check {
namespace {

using cuda::CopyBatch;
using cuda::Direction;
using Bytes = std::vector<std::byte>;

constexpr size_t kHostBytes = 32 << 20;
constexpr size_t kOddHostBytes = 1 << 20;  // for many small checks
constexpr std::byte kGap{0xee};

Bytes Pattern(size_t bytes, uint64_t seed) {
  Bytes pattern(bytes);
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (std::byte& byte : pattern) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(state >> 56);
  }
  return pattern;
}

// One GPU, page-locked shared memory beside it, and a copier that goes by the kernel or by
// batches of copies alone.
class Check {
 public:
  Check(const Machine& machine, int device, uint64_t batch_copy_bytes, size_t host_bytes)
      : machine_(machine), host_(host_bytes) {
    cuda::CopierOptions options;
    options.batch_copy_bytes = batch_copy_bytes;
    Must(machine_, cuda::Copier::Open(*machine_.driver, device, options, &copier_));
    Must(machine_, lock_.Lock(*machine_.driver, copier_->context(), host_.data(), host_.size()));
  }

  // Blocks go to the GPU and come back: every byte is right on both sides, and no other is touched.
  bool BothWays(const Layout& layout, uint64_t blocks) {
    const cuda::ContextScope scope(*machine_.driver, copier_->context());
    const uint64_t copied = blocks * layout.block_bytes();
    const Bytes pattern = Pattern(host_.size(), layout.piece_bytes + layout.first_byte);
    std::memcpy(host_.data(), pattern.data(), host_.size());
    DeviceMemory memory(machine_, layout.span(blocks));
    Bytes expected(layout.span(blocks), kGap);
    memory.Write(expected);
    if (!Run(layout, blocks, Direction::kToDevice, memory.address(), copier_->own_stream(Direction::kToDevice)))
      return false;
    for (uint64_t block = 0; block < blocks; ++block) {
      for (uint64_t piece = 0; piece < layout.pieces; ++piece) {
        const uint64_t at = layout.host_offset + block * layout.block_bytes() + piece * layout.piece_bytes;
        std::memcpy(expected.data() + layout.offset(blocks, block, piece), pattern.data() + at, layout.piece_bytes);
      }
    }
    if (memory.Read() != expected) return false;
    std::memset(host_.data(), 0x11, host_.size());
    if (!Run(layout, blocks, Direction::kFromDevice, memory.address(), copier_->own_stream(Direction::kFromDevice)))
      return false;
    Bytes back(host_.size(), std::byte{0x11});
    std::memcpy(back.data() + layout.host_offset, pattern.data() + layout.host_offset, copied);
    return std::memcmp(back.data(), host_.data(), host_.size()) == 0;
  }

  // A stream that has much to do: what is queued behind it by the copier, and behind that by the
  // stream's owner, runs in order; another stream waits for the event.
  bool OnAStreamOfTheCallers() {
    const cuda::ContextScope scope(*machine_.driver, copier_->context());
    CUstream streams[2] = {nullptr, nullptr};
    CUevent event = nullptr;
    for (CUstream& stream : streams) {
      Must(machine_, machine_.driver->StreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    }
    Must(machine_, machine_.driver->EventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    const Bytes pattern = Pattern(host_.size(), 7);
    std::memcpy(host_.data(), pattern.data(), host_.size());
    constexpr size_t kBytes = 8 << 20;
    DeviceMemory memory(machine_, kBytes);
    std::byte* const behind = host_.data() + kBytes;
    std::byte* const beyond = host_.data() + 2 * kBytes;
    // What the copier's pieces must overwrite, twenty times to keep the stream busy.
    for (int i = 0; i < 20; ++i) {
      Must(machine_, machine_.MemcpyHtoDAsync(memory.address(), beyond, kBytes, streams[0]), "cuMemcpyHtoDAsync");
    }
    CopyBatch batch;
    batch.Add(Direction::kToDevice, memory.address(), reinterpret_cast<uint64_t>(host_.data()), 4096, 4096,
              kBytes / 4096);
    uint64_t ticket = 0;
    Must(machine_, copier_->Queue(&batch, streams[0], &ticket));
    Must(machine_, copier_->Record(event, streams[0]));
    Must(machine_, machine_.MemcpyDtoHAsync(behind, memory.address(), kBytes, streams[0]), "cuMemcpyDtoHAsync");
    Must(machine_, machine_.StreamWaitEvent(streams[1], event, 0), "cuStreamWaitEvent");
    Must(machine_, machine_.MemcpyDtoHAsync(beyond, memory.address(), kBytes, streams[1]), "cuMemcpyDtoHAsync");
    for (CUstream stream : streams) Must(machine_, machine_.StreamSynchronize(stream), "cuStreamSynchronize");
    const bool good = batch.queued() && Settle() && std::memcmp(behind, pattern.data(), kBytes) == 0 &&
                      std::memcmp(beyond, pattern.data(), kBytes) == 0;
    for (CUstream stream : streams) Must(machine_, machine_.driver->StreamDestroy(stream), "cuStreamDestroy");
    Must(machine_, machine_.driver->EventDestroy(event), "cuEventDestroy");
    return good;
  }

 private:
  bool Run(const Layout& layout, uint64_t blocks, Direction direction, CUdeviceptr device, CUstream stream) {
    CopyBatch batch;
    for (uint64_t block = 0; block < blocks; ++block) {
      const uint64_t host =
          reinterpret_cast<uint64_t>(host_.data()) + layout.host_offset + block * layout.block_bytes();
      layout.Add(direction, blocks, block, device, host, &batch);
    }
    while (!batch.queued()) {
      uint64_t ticket = 0;
      Must(machine_, copier_->Queue(&batch, stream, &ticket));
      if (ticket == 0) Settle();
    }
    return Settle();
  }
  bool Settle() {
    std::vector<uint64_t> finished;
    while (!copier_->idle()) Must(machine_, copier_->Poll(&finished));
    return !finished.empty();
  }

  const Machine& machine_;
  const SharedBytes host_;
  std::unique_ptr<cuda::Copier> copier_;
  cuda::PageLock lock_;
};

bool Say(const std::string& what, bool good) {
  std::printf("  %-64s %s\n", what.c_str(), good ? "ok" : "FAILED");
  std::fflush(stdout);
  return good;
}

// Every offset within 16 bytes on either side, every length around the widths of words.
bool AllAlignments(Check* check, bool all_host_bytes) {
  for (uint64_t device_byte = 0; device_byte < 17; ++device_byte) {
    for (const uint64_t host_byte : {0, 1, 2, 4, 8, 13}) {
      if (host_byte != 0 && !all_host_bytes) break;
      for (const uint64_t length : {1, 15, 16, 17, 4097, 30'001}) {
        if (!check->BothWays({"odd", 3, length, 5, device_byte, host_byte}, 2)) return false;
      }
    }
  }
  return true;
}

int CheckWay(const Machine& machine, int device, const std::string& way, uint64_t batch_copy_bytes) {
  int failed = 0;
  Check check(machine, device, batch_copy_bytes, kHostBytes);
  for (const Layout& layout : {kLlama8B, kTensorParallel8, kMla, kHalfLayers, kQuarterMiB, kOneMiB}) {
    const uint64_t blocks = (16 << 20) / layout.block_bytes();
    const std::string what = way + ", " + std::to_string(blocks) + " blocks of " + layout.name;
    failed += Say(what, check.BothWays(layout, blocks)) ? 0 : 1;
    if (device > 0) break;  // the others are as the first is
  }
  failed += Say(way + ", behind a stream's work, before an event", check.OnAStreamOfTheCallers()) ? 0 : 1;
  Check small(machine, device, batch_copy_bytes, kOddHostBytes);
  // A fake is slow where words are short.
  const bool good = AllAlignments(&small, /*all_host_bytes=*/device == 0 && !machine.fake);
  return failed + (Say(way + ", odd addresses and lengths", good) ? 0 : 1);
}

}  // namespace

int RunChecks(const Machine& machine, int device) {
  std::printf("GPU %d: %s\n", device, machine.Describe(device).c_str());
  int failed = CheckWay(machine, device, "kernel", UINT64_MAX);
  if (machine.driver->MemcpyBatchAsync != nullptr) return failed + CheckWay(machine, device, "cuMemcpyBatchAsync", 0);
  std::printf("  cuMemcpyBatchAsync: this driver has none\n");
  return failed;
}

}  // namespace quarry::gpu_check
