#include "tools/bench/spill_load.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tools/bench/limit_process.h"
#include "tools/bench/spill_load_side.h"

namespace quarry::bench {
namespace {

std::vector<std::string> DiskArguments(const SpillLoadOptions& options) {
  return {"disk",
          "--op",
          "write",
          "--dir",
          options.server.ssd_dir,
          "--block",
          absl::StrCat(options.block_bytes),
          "--total",
          absl::StrCat(options.server.ssd_bytes),
          "--depth",
          absl::StrCat(options.disk_depth)};
}

class Runner {
 public:
  explicit Runner(const SpillLoadOptions& options) : options_(options) {}

  absl::StatusOr<SpillLoadReport> Run() {
    auto disk = LimitProcess::Start(DiskArguments(options_));
    if (!disk.ok()) return disk.status();
    disk_ = *std::move(disk);
    for (const bool with_ssd : {true, false}) {
      auto side = SpillLoadSide::Create(options_, with_ssd);
      if (!side.ok()) return side.status();
      (with_ssd ? ssd_ : plain_) = *std::move(side);
    }
    if (absl::Status status = WarmUp(); !status.ok()) return status;
    for (uint32_t round = 0; round < options_.rounds; ++round) {
      if (absl::Status status = RunRound(round); !status.ok()) return status;
    }
    report_.disk_gb_per_s = Median(disk_rates_);
    Summarise(rounds_, &report_);
    const auto counters = ssd_->Counters();
    if (!counters.ok()) return counters.status();
    report_.io_engine = counters->io_engine;
    report_.write_amplification = counters->write_amplification();
    absl::Status stopped = ssd_->Stop();
    stopped.Update(plain_->Stop());
    if (!stopped.ok()) return stopped;
    return report_;
  }

 private:
  absl::StatusOr<double> DiskBytesPerS() {
    const auto raw = disk_->Run(static_cast<double>(options_.step_ns) / 1e9);
    if (!raw.ok()) return raw.status();
    disk_rates_.push_back(raw->gb_per_s);
    report_.limit_io_engine = raw->io_engine;
    return raw->gb_per_s * 1e9;
  }

  absl::Status WarmUp() {
    auto raw = DiskBytesPerS();
    if (!raw.ok()) return raw.status();
    disk_rates_.clear();
    for (SpillLoadSide* side : {ssd_.get(), plain_.get()}) {
      if (absl::Status status = side->WarmUp(*raw * kSpillShares[kTargetShare]); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // Shares up and down, the servers in changing order, so that a drift of the machine favours none.
  absl::Status RunRound(uint32_t number) {
    auto raw = DiskBytesPerS();
    if (!raw.ok()) return raw.status();
    SpillRound& round = rounds_.emplace_back();
    for (size_t i = 0; i < kSpillShares.size(); ++i) {
      const size_t share = number % 2 == 0 ? i : kSpillShares.size() - 1 - i;
      const double rate = *raw * kSpillShares[share];
      if ((number + i) % 2 == 0) round[share].ssd = ssd_->Run(rate);
      round[share].plain = plain_->Run(rate);
      if ((number + i) % 2 == 1) round[share].ssd = ssd_->Run(rate);
    }
    return absl::OkStatus();
  }

  const SpillLoadOptions& options_;
  SpillLoadReport report_;
  std::unique_ptr<LimitProcess> disk_;
  std::unique_ptr<SpillLoadSide> ssd_;
  std::unique_ptr<SpillLoadSide> plain_;
  std::vector<double> disk_rates_;
  std::vector<SpillRound> rounds_;
};

}  // namespace

absl::StatusOr<SpillLoadReport> RunSpillLoad(const SpillLoadOptions& options) { return Runner(options).Run(); }

}  // namespace quarry::bench
