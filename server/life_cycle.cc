#include "server/life_cycle.h"

#include <spdlog/spdlog.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>

#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/allocator.h"
#include "common/clock.h"
#include "common/units.h"
#include "server/daemon.h"
#include "server/logging.h"
#include "server/sd_notify.h"

namespace quarry::server {
namespace {

constexpr int kCouldNotStart = 1;

sigset_t WatchedSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, signal);
  return signals;
}

// Threads started later inherit the mask, so these signals come to WaitTick alone.
void TakeSignals() {
  const sigset_t signals = WatchedSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

// The signal that came within one tick, or 0.
int WaitTick() {
  const sigset_t signals = WatchedSignals();
  const timespec tick{0, Daemon::kTickMs * 1'000'000};
  const int signal = sigtimedwait(&signals, nullptr, &tick);
  return signal > 0 ? signal : 0;
}

bool IsStop(int signal) { return signal == SIGTERM || signal == SIGINT; }

void Notify(const char* state) {
  if (absl::Status status = SdNotify(state); !status.ok()) spdlog::warn("{}", std::string(status.message()));
}

void Reload(ServerConfig* current, const std::function<CommandLine()>& reload) {
  CommandLine read = reload();
  if (!read.config.has_value()) {
    spdlog::error("reload: nothing changed: {}", std::string(absl::StripSuffix(read.output, "\n")));
    return;
  }
  std::vector<std::string> applied;
  std::vector<std::string> need_restart;
  for (const std::string& name : ChangedSettings(*current, *read.config)) {
    (IsReloadable(name) ? applied : need_restart).push_back(name);
  }
  current->log_level = read.config->log_level;
  for (const std::string& name : applied) {
    const auto value = read.config->given.find(name);
    if (value == read.config->given.end()) {
      current->given.erase(name);
    } else {
      current->given[name] = value->second;
    }
  }
  // Said at the more talkative of the two levels.
  const auto report = [&] {
    spdlog::info("reload: applied: {}; need a restart: {}", applied.empty() ? "none" : absl::StrJoin(applied, ", "),
                 need_restart.empty() ? "none" : absl::StrJoin(need_restart, ", "));
  };
  const bool before = spdlog::should_log(spdlog::level::info);
  if (before) report();
  SetLogLevel(current->log_level);
  if (!before) report();
}

void DrainAndWait(Daemon* daemon, int64_t timeout_ns) {
  const Clock* clock = Clock::Real();
  const int64_t end = clock->NowNs() + timeout_ns;
  spdlog::info("draining, for at most {}", FormatDuration(timeout_ns));
  daemon->Drain();
  while (!daemon->Idle()) {
    if (clock->NowNs() >= end) {
      spdlog::warn("drain: requests still under way after {}: cut off", FormatDuration(timeout_ns));
      return;
    }
    if (IsStop(WaitTick())) {
      spdlog::warn("drain: a second signal: requests still under way are cut off");
      return;
    }
    daemon->Tick();
  }
  spdlog::info("drained");
}

}  // namespace

int RunDaemon(const ServerConfig& config, const std::function<CommandLine()>& reload) {
  TakeSignals();
  KeepFreedMemory();
  ConfigureLogging(config.log_format, config.log_level);
  absl::StatusOr<std::unique_ptr<Daemon>> daemon = Daemon::Start(config);
  if (!daemon.ok()) {
    std::fprintf(stderr, "quarryd: %s\n", std::string(daemon.status().message()).c_str());
    return kCouldNotStart;
  }
  if (std::printf("%s\n", (*daemon)->ReadyLine().c_str()) < 0 || std::fflush(stdout) != 0) {
    spdlog::warn("nobody reads the ready line on stdout");
  }
  Notify("READY=1");
  ServerConfig current = config;
  while (true) {
    const int signal = WaitTick();
    if (IsStop(signal)) break;
    if (signal == SIGHUP) Reload(&current, reload);
    (*daemon)->Tick();
  }
  Notify("STOPPING=1");
  DrainAndWait(daemon->get(), current.drain_timeout_ns);
  daemon->reset();
  spdlog::info("stopped");
  return 0;
}

}  // namespace quarry::server
