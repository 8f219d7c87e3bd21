#include "tools/bench/server_process.h"

#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace quarry::bench {
namespace {

constexpr int kStartTimeoutMs = 60'000;  // the arena is faulted in first
constexpr int kStopTimeoutMs = 30'000;

// Where the build tree and an installed tree keep quarryd, seen from this program.
absl::StatusOr<std::string> FindQuarryd() {
  const std::filesystem::path here = ProgramFolder();
  const std::array<std::filesystem::path, 3> candidates = {here / "quarryd", here / "../server/quarryd",
                                                           here / "../../server/quarryd"};
  for (const auto& candidate : candidates) {
    if (access(candidate.c_str(), X_OK) == 0) return candidate.lexically_normal().string();
  }
  return absl::NotFoundError(absl::StrCat("no quarryd near ", here.string(), "; name it with --quarryd"));
}

}  // namespace

std::string ReadyField(const std::string& line, const std::string& key) {
  for (absl::string_view word : absl::StrSplit(line, ' ')) {
    if (absl::StartsWith(word, absl::StrCat(key, "="))) return std::string(word.substr(key.size() + 1));
  }
  return "";
}

absl::StatusOr<std::unique_ptr<ServerUnderTest>> ServerUnderTest::Start(const ServerOptions& options) {
  std::unique_ptr<ServerUnderTest> server(new ServerUnderTest);
  if (!options.server.empty()) {
    server->transfer_ = options.server;
    server->grpc_ = options.grpc;
    server->metrics_ = options.metrics;
    server->pid_ = options.server_pid;
    return server;
  }
  std::string program = options.quarryd;
  if (program.empty()) {
    auto found = FindQuarryd();
    if (!found.ok()) return found.status();
    program = *found;
  }
  auto socket_dir = ScratchDir::Create("/tmp");
  if (!socket_dir.ok()) return socket_dir.status();
  server->socket_dir_ = *std::move(socket_dir);
  std::vector<std::string>& argv = server->argv_;
  argv = {program,
          "--listen-grpc",
          "127.0.0.1:0",
          "--listen-transfer",
          "127.0.0.1:0",
          "--listen-metrics",
          "127.0.0.1:0",
          "--socket",
          server->socket_dir_->path() + "/quarryd.sock",
          "--memory",
          absl::StrCat(options.memory_bytes)};
  if (!options.ssd_dir.empty()) {
    auto dir = ScratchDir::Create(options.ssd_dir);
    if (!dir.ok()) return dir.status();
    server->ssd_dir_ = *std::move(dir);
    argv.insert(argv.end(), {"--ssd-dir", server->ssd_dir_->path(), "--ssd-size", absl::StrCat(options.ssd_bytes),
                             "--ssd-io", options.ssd_io});
    const auto add_bytes = [&argv](const char* flag, uint64_t bytes) {
      if (bytes != 0) argv.insert(argv.end(), {flag, absl::StrCat(bytes)});
    };
    add_bytes("--ssd-write-budget", options.ssd_write_budget_bytes);
    add_bytes("--ssd-write-burst", options.ssd_write_burst_bytes);
  }
  argv.insert(argv.end(), options.quarryd_flags.begin(), options.quarryd_flags.end());
  if (absl::Status status = server->Launch(); !status.ok()) return status;
  return server;
}

absl::Status ServerUnderTest::Launch() {
  auto process = ChildProcess::Start(argv_);
  if (!process.ok()) return process.status();
  process_ = *std::move(process);
  pid_ = process_->pid();
  for (;;) {
    auto line = process_->ReadLine(kStartTimeoutMs);
    if (!line.ok()) return line.status();
    if (!absl::StartsWith(*line, "quarryd ready ")) continue;
    transfer_ = ReadyField(*line, "transfer");
    grpc_ = ReadyField(*line, "grpc");
    metrics_ = ReadyField(*line, "metrics");
    return absl::OkStatus();
  }
}

absl::Status ServerUnderTest::Restart() {
  if (absl::Status status = process_->Stop(kStopTimeoutMs); !status.ok()) return status;
  return Launch();
}

std::optional<double> ServerUnderTest::CpuSeconds() const {
  if (pid_ == 0) return std::nullopt;
  std::ifstream file(absl::StrCat("/proc/", pid_, "/stat"));
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;  // state to cmajflt: fields 3 to 13
  uint64_t user = 0, system = 0;
  if (!(fields >> user >> system)) return std::nullopt;
  return static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

absl::Status ServerUnderTest::Stop() {
  if (process_ == nullptr) return absl::OkStatus();
  absl::Status status = process_->Stop(kStopTimeoutMs);
  process_.reset();
  socket_dir_.reset();
  ssd_dir_.reset();
  return status;
}

}  // namespace quarry::bench
