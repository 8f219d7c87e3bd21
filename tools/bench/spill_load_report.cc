#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/units.h"
#include "tools/bench/latencies.h"
#include "tools/bench/spill_load.h"

namespace quarry::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kBarCharacters = 40;  // for a ratio of 1

double Over(double a, double b) { return b > 0 ? a / b : 0; }

template <typename Of>
double MedianOf(const std::vector<SpillRound>& rounds, Of of) {
  std::vector<double> values;
  for (const SpillRound& round : rounds) values.push_back(of(round));
  return Median(values);
}

// The rates' medians and the counts' sums of one share of one server.
template <typename Of>
SpillStep StepOf(const std::vector<SpillRound>& rounds, Of of) {
  SpillStep step;
  step.get_gb_per_s = MedianOf(rounds, [&](const SpillRound& r) { return of(r).get_gb_per_s; });
  step.put_gb_per_s = MedianOf(rounds, [&](const SpillRound& r) { return of(r).put_gb_per_s; });
  step.spilled_gb_per_s = MedianOf(rounds, [&](const SpillRound& r) { return of(r).spilled_gb_per_s; });
  for (const SpillRound& round : rounds) {
    const SpillStep& one = of(round);
    step.loaded_bytes += one.loaded_bytes;
    step.unspilled_blocks += one.unspilled_blocks;
    step.errors += one.errors;
    step.wrong_bytes += one.wrong_bytes;
    if (step.first_error.empty()) step.first_error = one.first_error;
  }
  return step;
}

std::string Bar(double ratio) {
  const auto filled = static_cast<size_t>(std::clamp(ratio, 0.0, 1.0) * kBarCharacters + 0.5);
  return std::string(filled, '#') + std::string(static_cast<size_t>(kBarCharacters) - filled, '.');
}

Json JsonOf(double share, const SpillLoadRow& row) {
  return {
      {"share", share},
      {"put_gb_per_s", row.steps.ssd.put_gb_per_s},
      {"spilled_gb_per_s", row.steps.ssd.spilled_gb_per_s},
      {"get_gb_per_s", row.steps.ssd.get_gb_per_s},
      {"ratio", row.ratio},
      {"round_ratios", row.round_ratios},
      {"without_ssd_put_gb_per_s", row.steps.plain.put_gb_per_s},
      {"without_ssd_get_gb_per_s", row.steps.plain.get_gb_per_s},
      {"without_ssd_ratio", row.plain_ratio},
      {"spill_ratio", row.spill_ratio},
      {"loaded_bytes", row.steps.ssd.loaded_bytes},
      {"unspilled_blocks", row.steps.ssd.unspilled_blocks},
  };
}

}  // namespace

void Summarise(const std::vector<SpillRound>& rounds, SpillLoadReport* report) {
  for (size_t share = 0; share < kSpillShares.size(); ++share) {
    SpillLoadRow& row = report->rows[share];
    row.steps.ssd = StepOf(rounds, [share](const SpillRound& r) -> const SpillStep& { return r[share].ssd; });
    row.steps.plain = StepOf(rounds, [share](const SpillRound& r) -> const SpillStep& { return r[share].plain; });
    const auto ratio = [share](const SpillRound& r) { return Over(r[share].ssd.get_gb_per_s, r[0].ssd.get_gb_per_s); };
    const auto plain_ratio = [share](const SpillRound& r) {
      return Over(r[share].plain.get_gb_per_s, r[0].plain.get_gb_per_s);
    };
    for (const SpillRound& round : rounds) row.round_ratios.push_back(ratio(round));
    row.ratio = MedianOf(rounds, ratio);
    row.plain_ratio = MedianOf(rounds, plain_ratio);
    row.spill_ratio = MedianOf(rounds, [&](const SpillRound& r) { return Over(ratio(r), plain_ratio(r)); });
    for (const SpillStep* step : {&row.steps.ssd, &row.steps.plain}) {
      report->errors += step->errors;
      report->wrong_bytes += step->wrong_bytes;
      if (report->first_error.empty()) report->first_error = step->first_error;
    }
  }
}

std::string FormatJson(const SpillLoadOptions& options, const SpillLoadReport& report) {
  Json json;
  json["block_bytes"] = options.block_bytes;
  json["segment_bytes"] = options.segment_bytes;
  json["clients"] = options.clients;
  json["memory_bytes"] = options.server.memory_bytes;
  json["hot_bytes"] = options.hot_bytes;
  json["ssd_bytes"] = options.server.ssd_bytes;
  json["ssd_io"] = report.io_engine;
  json["rounds"] = options.rounds;
  json["limit_disk_gb_per_s"] = report.disk_gb_per_s;
  json["limit_disk_io"] = report.limit_io_engine;
  json["limit_disk_depth"] = options.disk_depth;
  json["write_amplification"] = report.write_amplification;
  json["shares"] = Json::array();
  for (size_t i = 0; i < kSpillShares.size(); ++i) json["shares"].push_back(JsonOf(kSpillShares[i], report.rows[i]));
  json["within"] = report.within();
  json["errors"] = report.errors;
  json["wrong_bytes"] = report.wrong_bytes;
  if (!report.first_error.empty()) json["first_error"] = report.first_error;
  return json.dump(2) + "\n";
}

std::string FormatText(const SpillLoadOptions& options, const SpillLoadReport& report) {
  std::string text = absl::StrFormat(
      "gets of %s of hot blocks in a memory of %s, %d x %s a call, %d clients; puts at a share of what direct IO "
      "writes "
      "(%.2f GB/s by %s, %d in flight); medians of %d rounds\n",
      FormatBytes(options.hot_bytes), FormatBytes(options.server.memory_bytes), options.batch,
      FormatBytes(options.block_bytes), options.clients, report.disk_gb_per_s, report.limit_io_engine,
      options.disk_depth, options.rounds);
  absl::StrAppendFormat(&text, "%6s %6s %8s %6s  %s %12s %12s\n", "puts", "GB/s", "spilled", "gets",
                        "of those without puts                        ", "without SSD", "spill alone");
  uint64_t loaded_bytes = 0, unspilled_blocks = 0;
  for (size_t i = 0; i < kSpillShares.size(); ++i) {
    const SpillLoadRow& row = report.rows[i];
    absl::StrAppendFormat(&text, "%4.0f %% %6.2f %8.2f %6.2f  %.2f %s %12.2f %12.2f\n", kSpillShares[i] * 100,
                          row.steps.ssd.put_gb_per_s, row.steps.ssd.spilled_gb_per_s, row.steps.ssd.get_gb_per_s,
                          row.ratio, Bar(row.ratio), row.plain_ratio, row.spill_ratio);
    loaded_bytes += row.steps.ssd.loaded_bytes;
    unspilled_blocks += row.steps.ssd.unspilled_blocks;
  }
  absl::StrAppendFormat(
      &text,
      "SSD by %s: write amplification %.3f, %d blocks evicted unspilled; %s of what was got came from "
      "it\n",
      report.io_engine, report.write_amplification, unspilled_blocks, FormatBytes(loaded_bytes));
  absl::StrAppendFormat(&text, "target at %.0f %%: at least %.2f: %s (rounds:", kSpillShares[kTargetShare] * 100,
                        kLeastGetsUnderSpill, report.within() ? "within" : "MISSED");
  for (const double ratio : report.rows[kTargetShare].round_ratios) absl::StrAppendFormat(&text, " %.2f", ratio);
  absl::StrAppend(&text, ")\nerrors: ", report.errors, ", wrong bytes: ", report.wrong_bytes, "\n");
  if (!report.first_error.empty()) absl::StrAppend(&text, "first error: ", report.first_error, "\n");
  return text;
}

}  // namespace quarry::bench
