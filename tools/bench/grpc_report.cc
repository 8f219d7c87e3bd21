#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/units.h"
#include "tools/bench/grpc.h"

namespace quarry::bench {
namespace {

using Json = nlohmann::ordered_json;

const char* Verdict(bool within) { return within ? "within" : "MISSED"; }

Json JsonOf(const GrpcReport::Bytes& bytes) {
  Json json;
  json["grpc_gb_per_s"] = bytes.grpc_gb_per_s;
  json["session_gb_per_s"] = bytes.session_gb_per_s;
  json["ratio"] = bytes.ratio;
  json["pair_ratios"] = bytes.pair_ratios;
  json["server_cpu_s_per_gb"] =
      bytes.server_cpu_s_per_gb.has_value() ? Json(*bytes.server_cpu_s_per_gb) : Json(nullptr);
  json["within"] = bytes.within();
  return json;
}

std::string Row(const char* part, const std::string& figures, const std::string& target, bool within) {
  return absl::StrFormat("%-10s %s\n%-10s target %s: %s\n", part, figures, "", target, Verdict(within));
}

std::string RowOf(const char* op, const GrpcOptions& options, const GrpcReport::Bytes& bytes) {
  std::string figures = absl::StrFormat(
      "%.2f GB/s over gRPC, %.2f over sessions, %d clients, blocks of %s; ratio %.2f (", bytes.grpc_gb_per_s,
      bytes.session_gb_per_s, options.clients, FormatBytes(options.block_bytes), bytes.ratio);
  for (const double ratio : bytes.pair_ratios) absl::StrAppendFormat(&figures, " %.2f", ratio);
  figures += " )";
  if (bytes.server_cpu_s_per_gb.has_value()) {
    absl::StrAppendFormat(&figures, ", server %.2f CPU s a GB", *bytes.server_cpu_s_per_gb);
  }
  return Row(op, figures, absl::StrFormat("ratio at least %.1f", kLeastBytesRatio), bytes.within());
}

}  // namespace

std::string FormatJson(const GrpcOptions& options, const GrpcReport& report) {
  Json json;
  json["block_bytes"] = options.block_bytes;
  json["clients"] = options.clients;
  json["pairs"] = options.pairs;
  if (report.match.has_value()) {
    json["match"] = {{"hashes", options.hashes},
                     {"blocks", options.blocks},
                     {"lease", options.lease},
                     {"p50_us", report.match->p50_us},
                     {"p99_us", report.match->p99_us},
                     {"empty_p50_us", report.match->empty_p50_us},
                     {"empty_p99_us", report.match->empty_p99_us},
                     {"within", report.match->within()}};
  }
  if (report.get.has_value()) json["get"] = JsonOf(*report.get);
  if (report.put.has_value()) json["put"] = JsonOf(*report.put);
  if (report.observers.has_value()) {
    json["observers"] = {{"watchers", options.watchers},
                         {"scrape", options.scrape},
                         {"gb_per_s", report.observers->gb_per_s},
                         {"loss", report.observers->loss},
                         {"pair_losses", report.observers->pair_losses},
                         {"scrapes", report.observers->scrapes},
                         {"stats", report.observers->stats},
                         {"events", report.observers->events},
                         {"within", report.observers->within()}};
  }
  json["load"] = report.load;
  json["errors"] = report.errors;
  json["wrong_bytes"] = report.wrong_bytes;
  if (!report.first_error.empty()) json["first_error"] = report.first_error;
  return json.dump(2) + "\n";
}

std::string FormatText(const GrpcOptions& options, const GrpcReport& report) {
  std::string text;
  if (report.match.has_value()) {
    const GrpcReport::Match& match = *report.match;
    text += Row("match",
                absl::StrFormat("%d hashes, %s lease: p50 %.0f us, p99 %.0f us; an empty call %.0f and %.0f us",
                                options.hashes, options.lease ? "with a" : "no", match.p50_us, match.p99_us,
                                match.empty_p50_us, match.empty_p99_us),
                absl::StrFormat("p99 at most %.0f times the empty call's and %.0f us", kMostMatchTimesEmpty,
                                kMostMatchBeyondUs),
                match.within());
  }
  if (report.get.has_value()) text += RowOf("get", options, *report.get);
  if (report.put.has_value()) text += RowOf("put", options, *report.put);
  if (report.observers.has_value()) {
    const GrpcReport::Observers& seen = *report.observers;
    std::string figures =
        absl::StrFormat("%.2f GB/s of gets without; %d watchers%s cost %.1f %% (", seen.gb_per_s, options.watchers,
                        options.scrape ? ", scrapes and Stats" : "", seen.loss * 100);
    for (const double loss : seen.pair_losses) absl::StrAppendFormat(&figures, " %.1f", loss * 100);
    absl::StrAppendFormat(&figures, " ); %d scrapes, %d Stats, %d events", seen.scrapes, seen.stats, seen.events);
    text += Row("observers", figures, absl::StrFormat("below %.0f %%", kMostObserverLoss * 100), seen.within());
  }
  absl::StrAppendFormat(&text, "errors: %d, wrong bytes: %d, load of the machine: %.1f\n", report.errors,
                        report.wrong_bytes, report.load);
  if (!report.first_error.empty()) absl::StrAppend(&text, "first error: ", report.first_error, "\n");
  return text;
}

}  // namespace quarry::bench
