#include "tests/gpu/rates.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <memory>
#include <vector>

#include "client/cuda/copier.h"
#include "client/cuda/page_lock.h"
#include "client/cuda/slot_space.h"
#include "tests/gpu/layouts.h"

namespace quarry::gpu_check {
namespace {

using cuda::CopyBatch;
using cuda::Direction;
using Clock = std::chrono::steady_clock;

constexpr double kTarget = 0.85;  // of the plain copy
constexpr size_t kRingBytes = 64 << 20;
constexpr size_t kPartBytes = kRingBytes / 8;  // as the client cuts them
constexpr size_t kPlainBytes = 64 << 20;

// How much is moved, so that it takes some tens of milliseconds.
struct Effort {
  size_t bytes;
  int rounds;
};

double Rate(size_t bytes, Clock::duration took) {
  return static_cast<double>(bytes) / std::chrono::duration<double>(took).count() / 1e9;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Bench {
 public:
  Bench(const Machine& machine, int device)
      : machine_(machine),
        device_(device),
        effort_(machine.fake ? Effort{32 << 20, 1} : Effort{size_t{2} << 30, 5}),
        ring_(kRingBytes) {
    cuda::CopierOptions options;
    options.batch_copy_bytes = UINT64_MAX;
    Must(machine_, cuda::Copier::Open(*machine_.driver, device_, options, &by_kernel_));
    options.batch_copy_bytes = 0;
    Must(machine_, cuda::Copier::Open(*machine_.driver, device_, options, &by_batches_));
    Must(machine_, lock_.Lock(*machine_.driver, by_kernel_->context(), ring_.data(), ring_.size()));
  }

  void Print(const Layout& layout, Direction direction) {
    const cuda::ContextScope scope(*machine_.driver, by_kernel_->context());
    const uint64_t part_blocks = std::max<uint64_t>(kPartBytes / layout.block_bytes(), 1);
    const uint64_t blocks = std::max<uint64_t>(effort_.bytes / layout.block_bytes() / part_blocks, 1) * part_blocks;
    const DeviceMemory memory(machine_, std::max<uint64_t>(layout.span(blocks), kPlainBytes));
    std::vector<double> plain;
    std::vector<double> kernel;
    std::vector<double> batches;
    for (int round = 0; round <= effort_.rounds; ++round) {
      const double rates[] = {
          Plain(direction, memory.address()),
          Staged(by_kernel_.get(), layout, direction, memory.address(), blocks, part_blocks),
          machine_.driver->MemcpyBatchAsync == nullptr
              ? 0
              : Staged(by_batches_.get(), layout, direction, memory.address(), blocks, part_blocks)};
      if (round == 0 && effort_.rounds > 1) continue;  // warms up
      plain.push_back(rates[0]);
      kernel.push_back(rates[1]);
      batches.push_back(rates[2]);
    }
    const double limit = Median(plain);
    // By the client's own rule.
    const bool chooses_batches = layout.piece_bytes >= cuda::CopierOptions().batch_copy_bytes && Median(batches) > 0;
    const double chosen = chooses_batches ? Median(batches) : Median(kernel);
    std::printf("| %s | %-20s | %6.2f | %6.2f | %4.2f | %6.2f | %4.2f | %s, %s |\n",
                direction == Direction::kToDevice ? "get" : "put", layout.name, limit, Median(kernel),
                Median(kernel) / limit, Median(batches), Median(batches) / limit, chooses_batches ? "batch" : "kernel",
                chosen / limit >= kTarget ? "reached" : "missed");
    std::fflush(stdout);
  }

 private:
  double Plain(Direction direction, CUdeviceptr device) {
    CUstream stream = by_kernel_->own_stream(direction);
    const auto begin = Clock::now();
    const size_t times = std::max<size_t>(effort_.bytes / kPlainBytes, 1);
    for (size_t i = 0; i < times; ++i) {
      const CUresult queued = direction == Direction::kToDevice
                                  ? machine_.MemcpyHtoDAsync(device, ring_.data(), kPlainBytes, stream)
                                  : machine_.MemcpyDtoHAsync(ring_.data(), device, kPlainBytes, stream);
      Must(machine_, queued, "a plain copy");
    }
    Must(machine_, machine_.StreamSynchronize(stream), "cuStreamSynchronize");
    return Rate(times * kPlainBytes, Clock::now() - begin);
  }

  // Parts in slots of the ring, a batch a part, a slot used again when its copies have run. What has been received
  // (get) or is to be sent (put) is what lies in the ring.
  double Staged(cuda::Copier* copier, const Layout& layout, Direction direction, CUdeviceptr device, uint64_t blocks,
                uint64_t part_blocks) {
    cuda::SlotSpace space(kRingBytes);
    std::deque<std::pair<uint64_t, size_t>> running;  // ticket and slot, in order
    std::vector<uint64_t> finished;
    const auto begin = Clock::now();
    for (uint64_t block = 0; block < blocks; block += part_blocks) {
      std::optional<size_t> slot;
      while (!(slot = space.Take(part_blocks * layout.block_bytes()))) Poll(copier, &space, &running, &finished);
      CopyBatch batch;
      for (uint64_t i = 0; i < part_blocks; ++i) {
        const uint64_t host = reinterpret_cast<uint64_t>(ring_.data()) + *slot + i * layout.block_bytes();
        layout.Add(direction, blocks, block + i, device, host, &batch);
      }
      uint64_t last = 0;
      while (!batch.queued()) {
        uint64_t ticket = 0;
        Must(machine_, copier->Queue(&batch, copier->own_stream(direction), &ticket));
        if (ticket != 0) last = ticket;
        if (!batch.queued()) Poll(copier, &space, &running, &finished);
      }
      running.emplace_back(last, *slot);
    }
    while (!running.empty()) Poll(copier, &space, &running, &finished);
    return Rate(blocks * layout.block_bytes(), Clock::now() - begin);
  }

  void Poll(cuda::Copier* copier, cuda::SlotSpace* space, std::deque<std::pair<uint64_t, size_t>>* running,
            std::vector<uint64_t>* finished) {
    finished->clear();
    Must(machine_, copier->Poll(finished));
    // One stream: tickets end in order.
    while (!running->empty() && !finished->empty() && running->front().first <= finished->back()) {
      space->Give(running->front().second);
      running->pop_front();
    }
  }

  const Machine& machine_;
  const int device_;
  const Effort effort_;
  const SharedBytes ring_;
  std::unique_ptr<cuda::Copier> by_kernel_;
  std::unique_ptr<cuda::Copier> by_batches_;
  cuda::PageLock lock_;
};

}  // namespace

void PrintRates(const Machine& machine, int device) {
  Bench bench(machine, device);
  std::printf(
      "\nStaged copies between a page-locked ring and scattered GPU memory, GB/s; plain: one copy of 64 MiB.\n");
  std::printf("Target: %.2f of plain, by the way that the client takes for such pieces. GPU %d: %s\n\n", kTarget,
              device, machine.Describe(device).c_str());
  std::printf("| op  | pieces of a block    | plain  | kernel | /pl. | batch  | /pl. | the client's |\n");
  std::printf("| --- | -------------------- | ------ | ------ | ---- | ------ | ---- | ------------ |\n");
  for (const Direction direction : {Direction::kToDevice, Direction::kFromDevice}) {
    for (const Layout& layout : {kLlama8B, kTensorParallel8, kMla, kHalfLayers, kQuarterMiB, kOneMiB}) {
      bench.Print(layout, direction);
    }
  }
}

}  // namespace quarry::gpu_check
