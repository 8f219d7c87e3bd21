// Signals as something to wait for, for commands that go on until they are told to stop.
#ifndef QUARRY_TOOLS_QUARRYCTL_NODE_SIGNALS_H_
#define QUARRY_TOOLS_QUARRYCTL_NODE_SIGNALS_H_

#include <csignal>
#include <cstdint>
#include <vector>

namespace quarry::ctl {

// SIGINT, SIGTERM and SIGHUP: what tells a command to stop.
std::vector<int> StopSignals();
bool IsStop(int signal);

// As long as it lives, these signals do nothing but end a Wait; those that the process
// ignores (nohup, a shell's background jobs) stay ignored. Made before the first thread, so
// before a Connection: gRPC's threads inherit it.
class Signals {
 public:
  explicit Signals(const std::vector<int>& numbers);
  // What has come and was not waited for is forgotten.
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // The next that came; 0: none within timeout_ns, or Wake was called.
  int Wait(int64_t timeout_ns);
  // Whether one has come that says stop. Others that have come are forgotten.
  bool Stopped();
  // Ends the Wait of another thread, the one under way or the next. Thread-safe.
  void Wake();

 private:
  sigset_t set_;
  sigset_t before_;
  int signal_fd_;
  int wake_fd_;
};

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_NODE_SIGNALS_H_
