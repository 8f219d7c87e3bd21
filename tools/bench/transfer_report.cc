#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/units.h"
#include "tools/bench/transfer.h"

namespace quarry::bench {
namespace {

using Json = nlohmann::ordered_json;

bool IsSpill(const TransferOptions& options) { return options.tier == Tier::kSsd && options.op == TransferOp::kPut; }

bool IsMatch(const TransferOptions& options) { return options.op == TransferOp::kMatch; }

void AddLimit(const TransferOptions& options, const TransferReport& report, Json* json) {
  (*json)["limit_gb_per_s"] = report.limit_gb_per_s;
  (*json)["ratio"] = *report.ratio;
  (*json)["pair_ratios"] = report.pair_ratios;
  if (IsMatch(options)) {
    (*json)["limit_p50_us"] = report.limit_p50_us;
    (*json)["limit_p99_us"] = report.limit_p99_us;
    (*json)["p99_over_limit"] = report.p99_over_limit;
    return;
  }
  if (report.ssd.has_value()) {
    (*json)["limit_disk_gb_per_s"] = report.ssd->disk_gb_per_s;
    (*json)["limit_disk_io"] = report.ssd->limit_io_engine;
    (*json)["limit_disk_depth"] = options.disk_depth;
    if (IsSpill(options)) return;
    (*json)["limit_sockets_gb_per_s"] = report.ssd->sockets_gb_per_s;
  }
  (*json)["limit_buffer_bytes"] = report.limit_buffer_bytes;
  (*json)["iperf3_gb_per_s"] = report.iperf3_gb_per_s.has_value() ? Json(*report.iperf3_gb_per_s) : Json(nullptr);
  (*json)["limit_void"] = report.limit_void;
}

void AddSsd(const TransferOptions& options, const SsdReport& ssd, Json* json) {
  (*json)["tier"] = "ssd";
  (*json)["ssd_io"] = ssd.io_engine;
  (*json)["memory_bytes"] = options.server.memory_bytes;
  (*json)["ssd_bytes"] = options.server.ssd_bytes;
  (*json)["unspilled_blocks"] = ssd.unspilled_blocks;
  if (IsSpill(options)) {
    (*json)["put_gb_per_s"] = ssd.put_gb_per_s;
    (*json)["write_amplification"] = ssd.write_amplification;
  } else {
    (*json)["from_ssd"] = ssd.from_ssd;
  }
}

std::string SsdText(const TransferOptions& options, const SsdReport& ssd) {
  std::string text = absl::StrFormat("SSD by %s, %s of blocks, memory %s: ", ssd.io_engine,
                                     FormatBytes(options.server.ssd_bytes), FormatBytes(options.server.memory_bytes));
  if (IsSpill(options)) {
    absl::StrAppendFormat(&text, "that rate was spilled and committed, %.2f GB/s were put; write amplification %.3f; ",
                          ssd.put_gb_per_s, ssd.write_amplification);
  } else {
    absl::StrAppendFormat(&text, "%.1f %% of the bytes came from it; ", ssd.from_ssd * 100);
  }
  absl::StrAppendFormat(&text, "%d blocks evicted unspilled\n", ssd.unspilled_blocks);
  return text;
}

std::string PairsText(const TransferReport& report) {
  std::string text = absl::StrFormat("ratio %.3f (median of %d pairs:", *report.ratio, report.pair_ratios.size());
  for (double ratio : report.pair_ratios) absl::StrAppendFormat(&text, " %.2f", ratio);
  return text + ")\n";
}

std::string LimitText(const TransferOptions& options, const TransferReport& report) {
  if (IsMatch(options)) {
    return absl::StrFormat(
        "echo of equal bytes: p50 %.1f us, p99 %.1f us; match is %+.1f us at p50 and %.2fx at p99 (medians of %d "
        "pairs)\n",
        report.limit_p50_us, report.limit_p99_us, report.p50_us - report.limit_p50_us, report.p99_over_limit,
        report.pair_ratios.size());
  }
  std::string text;
  if (report.ssd.has_value()) {
    absl::StrAppendFormat(&text, "direct IO by %s, %d in flight: %.2f GB/s; ", report.ssd->limit_io_engine,
                          options.disk_depth, report.ssd->disk_gb_per_s);
    if (IsSpill(options)) return text + PairsText(report);
  }
  if (options.transport == "shm") {
    absl::StrAppendFormat(&text, "plain %s by as many threads: %.2f GB/s; ",
                          options.buffers == Buffers::kMemfd ? "memcpy" : "process_vm calls", report.limit_gb_per_s);
    return text + PairsText(report);
  }
  if (options.transport == "ucx") {
    absl::StrAppendFormat(&text, "bare UCX, one worker at each end: %.2f GB/s; ", report.limit_gb_per_s);
    return text + PairsText(report);
  }
  absl::StrAppendFormat(
      &text, "plain sockets: %.2f GB/s with buffers of %s; ",
      report.ssd.has_value() ? report.ssd->sockets_gb_per_s : report.limit_gb_per_s,
      report.limit_buffer_bytes == 0 ? "the kernel's choice" : FormatBytes(report.limit_buffer_bytes));
  if (report.ssd.has_value()) text += "of the smaller one: ";
  text += PairsText(report);
  if (!report.iperf3_gb_per_s.has_value()) return text + "iperf3 is not installed: the limit was not checked by it\n";
  absl::StrAppendFormat(&text, "iperf3: %.2f GB/s\n", *report.iperf3_gb_per_s);
  if (report.limit_void)
    text += "VOID: the plain-sockets program was slower than iperf3; run again on a quiet machine\n";
  return text;
}

}  // namespace

const char* NameOf(Buffers buffers) {
  switch (buffers) {
    case Buffers::kHost:
      return "host";
    case Buffers::kMemfd:
      return "memfd";
    case Buffers::kCuda:
      return "cuda";
  }
  return "";
}

const char* NameOf(TransferOp op) {
  switch (op) {
    case TransferOp::kPut:
      return "put";
    case TransferOp::kGet:
      return "get";
    case TransferOp::kFetch:
      return "fetch";
    case TransferOp::kMatch:
      return "match";
  }
  return "";
}

std::string FormatJson(const TransferOptions& options, const TransferReport& report) {
  Json json;
  json["op"] = NameOf(options.op);
  json["transport"] = options.transport;
  json["buffers"] = NameOf(options.buffers);
  json["block_bytes"] = IsMatch(options) ? options.match_block_bytes : options.block_bytes;
  json["segment_bytes"] = IsMatch(options) ? options.match_block_bytes : options.segment_bytes;
  json["clients"] = options.clients;
  json["gb_per_s"] = report.gb_per_s;
  json["ops_per_s"] = report.ops_per_s;
  json["p50_us"] = report.p50_us;
  json["p99_us"] = report.p99_us;
  json["errors"] = report.errors;
  json["wrong_bytes"] = report.wrong_bytes;
  json["server_cpu_s_per_gb"] =
      report.server_cpu_s_per_gb.has_value() ? Json(*report.server_cpu_s_per_gb) : Json(nullptr);
  json["streams"] = options.streams;
  json["checksum"] = options.checksum;
  json["duration_s"] = static_cast<double>(options.duration_ns) / 1e9;
  if (IsMatch(options)) {
    json["blocks"] = options.blocks;
    json["hashes"] = options.hashes;
    json["p50_us_per_hash"] = report.p50_us / options.hashes;
    if (report.index_bytes_per_block.has_value()) json["index_bytes_per_block"] = *report.index_bytes_per_block;
  } else {
    json["batch"] = options.batch;
    json["inflight"] = options.inflight;
  }
  if (report.ssd.has_value()) AddSsd(options, *report.ssd, &json);
  if (!report.first_error.empty()) json["first_error"] = report.first_error;
  if (report.ratio.has_value()) AddLimit(options, report, &json);
  return json.dump(2) + "\n";
}

std::string FormatText(const TransferOptions& options, const TransferReport& report) {
  std::string text;
  if (IsMatch(options)) {
    text = absl::StrFormat(
        "match of %d hashes in an index of %d blocks, %d clients: p50 %.1f us, p99 %.1f us, %.0f a second\n",
        options.hashes, options.blocks, options.clients, report.p50_us, report.p99_us, report.ops_per_s);
    if (report.index_bytes_per_block.has_value()) {
      absl::StrAppendFormat(&text, "index: %.0f bytes a block\n", *report.index_bytes_per_block);
    }
  } else {
    text = absl::StrFormat("%s of %d x %s in pieces of %s, %d clients, %d calls under way each: %.2f GB/s\n",
                           NameOf(options.op), options.batch, FormatBytes(options.block_bytes),
                           FormatBytes(options.segment_bytes), options.clients, options.inflight, report.gb_per_s);
    absl::StrAppendFormat(&text, "calls: %.0f a second, p50 %.0f us, p99 %.0f us\n", report.ops_per_s, report.p50_us,
                          report.p99_us);
  }
  if (report.server_cpu_s_per_gb.has_value() && !IsMatch(options)) {
    absl::StrAppendFormat(&text, "server: %.3f CPU seconds a GB\n", *report.server_cpu_s_per_gb);
  }
  if (report.ssd.has_value()) text += SsdText(options, *report.ssd);
  absl::StrAppendFormat(&text, "errors: %d, wrong bytes: %d\n", report.errors, report.wrong_bytes);
  if (!report.first_error.empty()) absl::StrAppend(&text, "first error: ", report.first_error, "\n");
  if (report.ratio.has_value()) text += LimitText(options, report);
  return text;
}

}  // namespace quarry::bench
