// quarryctl ssd: what lies on the node's SSDs, what was written to them, how their IO does.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "tools/quarryctl/flags.h"
#include "tools/quarryctl/node/commands.h"
#include "tools/quarryctl/node/connection.h"

namespace quarry::ctl {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 62;
constexpr double kSecondsPerDay = 86400;

uint64_t WrittenBytes(const v1::SsdDisk& disk) {
  return disk.spilled_bytes() + disk.moved_bytes() + disk.catalog_written_bytes();
}

// All that was written for each byte of blocks that had to be.
Value WriteAmplification(const v1::SsdDisk& disk) {
  if (disk.spilled_bytes() == 0) return Value::None();
  return Value::Quantity(static_cast<double>(WrittenBytes(disk)) / static_cast<double>(disk.spilled_bytes()));
}

Value Mean(uint64_t bytes, uint64_t count) { return count == 0 ? Value::None() : Value::Bytes(bytes / count); }

// Until `endurance_bytes` are written, at the rate since the node's start.
Value DaysLeft(const v1::SsdDisk& disk, double seconds, uint64_t endurance_bytes) {
  const auto written = static_cast<double>(WrittenBytes(disk));
  if (endurance_bytes == 0 || written == 0 || seconds <= 0) return Value::None();
  return Value::Quantity(static_cast<double>(endurance_bytes) / (written / seconds * kSecondsPerDay));
}

Table DiskTable(const v1::GetSsdResponse& ssd, uint64_t endurance_bytes) {
  Table table({{"dir", "DIRECTORY"},
               {"size_bytes", "SIZE"},
               {"live_bytes", "LIVE"},
               {"live_records", "RECORDS"},
               {"free_extents", "FREE EXTENTS"},
               {"spilled_bytes", "SPILLED"},
               {"moved_bytes", "MOVED"},
               {"write_amplification", "WRITE AMPL."},
               {"days_left", "DAYS LEFT"},
               {"writing", "WRITING"},
               {"last_error", "LAST ERROR", true}});
  for (const v1::SsdDisk& disk : ssd.disks()) {
    table.AddRow({Value::Text(disk.dir()), Value::Bytes(disk.size_bytes()), Value::Bytes(disk.live_bytes()),
                  Value::Count(disk.live_records()), Value::Count(disk.free_extents()),
                  Value::Bytes(disk.spilled_bytes()), Value::Bytes(disk.moved_bytes()), WriteAmplification(disk),
                  DaysLeft(disk, ssd.uptime_seconds(), endurance_bytes), Value::Flag(disk.writing()),
                  Value::Text(disk.last_error())});
  }
  return table;
}

Table IoTable(const v1::GetSsdResponse& ssd) {
  Table table({{"dir", "DIRECTORY"},
               {"io_engine", "IO BY"},
               {"direct", "DIRECT"},
               {"record_bytes", "BLOCK"},
               {"read_bytes", "READ"},
               {"mean_read_bytes", "MEAN READ"},
               {"written_bytes", "WRITTEN"},
               {"mean_write_bytes", "MEAN WRITE"},
               {"in_flight", "IN FLIGHT"},
               {"queued", "QUEUED"},
               {"errors", "ERRORS"},
               {"corrupt_records", "CORRUPT"}});
  for (const v1::SsdDisk& disk : ssd.disks()) {
    table.AddRow({Value::Text(disk.dir()), Value::Text(disk.io_engine()), Value::Flag(disk.direct()),
                  Mean(disk.live_bytes(), disk.live_records()), Value::Bytes(disk.reads().bytes()),
                  Mean(disk.reads().bytes(), disk.reads().requests()), Value::Bytes(disk.writes().bytes()),
                  Mean(disk.writes().bytes(), disk.writes().requests()), Value::Count(disk.io_in_flight()),
                  Value::Count(disk.io_queued()), Value::Count(disk.reads().errors() + disk.writes().errors()),
                  Value::Count(disk.corrupt_records())});
  }
  return table;
}

std::string StateName(const v1::SsdExtent& extent) {
  switch (extent.state()) {
    case v1::SsdExtent::STATE_ACTIVE:
      return "active";
    case v1::SsdExtent::STATE_SEALED:
      return "sealed";
    case v1::SsdExtent::STATE_RECLAIMING:
      return "reclaiming";
    default:
      return "free";
  }
}

Table ExtentTable(const v1::GetSsdResponse& ssd) {
  Table table({{"dir", "DIRECTORY"},
               {"extent", "EXTENT"},
               {"state", "STATE"},
               {"inlined", "INLINED"},
               {"bad", "BAD"},
               {"generation", "GENERATION"},
               {"size_bytes", "SIZE"},
               {"written_bytes", "WRITTEN"},
               {"live_bytes", "LIVE"},
               {"live_records", "RECORDS"}});
  for (const v1::SsdDisk& disk : ssd.disks()) {
    for (const v1::SsdExtent& extent : disk.extents()) {
      table.AddRow({Value::Text(disk.dir()), Value::Count(extent.number()), Value::Text(StateName(extent)),
                    Value::Flag(extent.inlined()), Value::Flag(extent.bad()), Value::Count(extent.generation()),
                    Value::Bytes(extent.bytes()), Value::Bytes(extent.written_bytes()),
                    Value::Bytes(extent.live_bytes()), Value::Count(extent.live_records())});
    }
  }
  return table;
}

class SsdCommand : public NodeCommand {
 public:
  std::string name() const override { return "ssd"; }
  std::string help() const override { return "What lies on the SSDs, what was written to them, how their IO does"; }
  void AddFlags(CLI::App* app) override {
    app->add_flag("--extents", extents_, "List the extents");
    AddSize(app, "--ssd-endurance", &endurance_bytes_, "Bytes that an SSD of the node may be written in its life", 1,
            kMostBytes);
  }

 protected:
  absl::StatusOr<ExitCode> Ask(Connection* connection, const Context& context) override {
    v1::GetSsdRequest request;
    request.set_extents(extents_);
    const auto ssd = connection->Call(&v1::Admin::Stub::GetSsd, request);
    if (!ssd.ok()) return ssd.status();
    Report report;
    report.Add("ssds", "SSDs", Value::Count(static_cast<uint64_t>(ssd->disks_size())));
    report.Add("uptime_seconds", "counted for", Value::Seconds(ssd->uptime_seconds()));
    report.Add("disks", DiskTable(*ssd, endurance_bytes_));
    report.Add("io", IoTable(*ssd));
    if (extents_) report.Add("extents", ExtentTable(*ssd));
    context.Print(report);
    const bool all_write =
        std::all_of(ssd->disks().begin(), ssd->disks().end(), [](const v1::SsdDisk& disk) { return disk.writing(); });
    return all_write ? ExitCode::kOk : ExitCode::kNo;
  }

 private:
  bool extents_ = false;
  uint64_t endurance_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Command> NewSsdCommand() { return std::make_unique<SsdCommand>(); }

}  // namespace quarry::ctl
