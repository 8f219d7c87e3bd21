#include "tools/bench/limit_process.h"

#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/net/socket.h"

namespace quarry::bench {
namespace {

constexpr int kReadyTimeoutMs = 60'000;  // its arenas are faulted in and its buffers tried
constexpr int kFinishTimeoutMs = 10'000;
constexpr int kGraceMs = 20'000;
constexpr int kIperfSeconds = 2;

absl::StatusOr<std::string> FindLimitProgram() {
  const std::filesystem::path here = ProgramFolder();
  for (const auto& candidate : {here / "quarry-bench-limit", here / "limit/quarry-bench-limit"}) {
    if (access(candidate.c_str(), X_OK) == 0) return candidate.string();
  }
  return absl::NotFoundError(absl::StrCat("no quarry-bench-limit beside ", here.string()));
}

bool Installed(const std::string& program) {
  const char* path = getenv("PATH");
  for (absl::string_view folder : absl::StrSplit(path == nullptr ? "" : path, ':')) {
    if (access(absl::StrCat(folder, "/", program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

absl::StatusOr<uint16_t> FreePort() {
  HostPort bound;
  auto listener = ListenTcp({"127.0.0.1", 0}, &bound);
  if (!listener.ok()) return listener.status();
  return bound.port;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LimitProcess>> LimitProcess::Start(const std::vector<std::string>& arguments) {
  auto program = FindLimitProgram();
  if (!program.ok()) return program.status();
  std::vector<std::string> argv = {*program};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  auto process = ChildProcess::Start(argv);
  if (!process.ok()) return process.status();
  auto line = (*process)->ReadLine(kReadyTimeoutMs);
  if (!line.ok()) return line.status();
  if (!absl::StartsWith(*line, "ready")) return absl::InternalError(absl::StrCat(*program, " said: ", *line));
  return std::unique_ptr<LimitProcess>(new LimitProcess(*std::move(process)));
}

// By the end of its input, so that it can end the server process that it has started.
LimitProcess::~LimitProcess() { process_->Finish(kFinishTimeoutMs).IgnoreError(); }

absl::StatusOr<LimitRound> LimitProcess::Run(double seconds) {
  if (absl::Status status = process_->WriteLine(absl::StrCat(seconds)); !status.ok()) return status;
  auto line = process_->ReadLine(static_cast<int>(seconds * 1e3) + kGraceMs);
  if (!line.ok()) return line.status();
  const nlohmann::json json = nlohmann::json::parse(*line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InternalError(absl::StrCat("quarry-bench-limit said: ", *line));
  LimitRound round;
  round.gb_per_s = json.value("gb_per_s", 0.0);
  round.p50_us = json.value("p50_us", 0.0);
  round.p99_us = json.value("p99_us", 0.0);
  round.ops = json.value("ops", uint64_t{0});
  round.buffer_bytes = json.value("buffer_bytes", 0);
  round.io_engine = json.value("io", "");
  return round;
}

absl::StatusOr<std::optional<double>> RunIperf3(uint32_t streams) {
  if (!Installed("iperf3")) return std::optional<double>();
  auto port = FreePort();
  if (!port.ok()) return port.status();
  const std::string port_text = absl::StrCat(*port);
  auto server = ChildProcess::Start({"iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", port_text, "--forceflush"});
  if (!server.ok()) return server.status();
  for (;;) {
    auto line = (*server)->ReadLine(kGraceMs);
    if (!line.ok()) return line.status();
    if (absl::StrContains(*line, "listening")) break;
  }
  auto client = ChildProcess::Start({"iperf3", "-c", "127.0.0.1", "-p", port_text, "-P", absl::StrCat(streams), "-t",
                                     absl::StrCat(kIperfSeconds), "-J"});
  if (!client.ok()) return client.status();
  auto output = (*client)->ReadAll(kIperfSeconds * 1'000 + kGraceMs);
  if (!output.ok()) return output.status();
  const nlohmann::json json = nlohmann::json::parse(*output, nullptr, /*allow_exceptions=*/false);
  const auto pointer = nlohmann::json::json_pointer("/end/sum_received/bits_per_second");
  if (!json.is_object() || !json.contains(pointer) || !json[pointer].is_number()) {
    return absl::InternalError("iperf3 gave no result");
  }
  return std::optional<double>(json[pointer].get<double>() / 8e9);
}

}  // namespace quarry::bench
