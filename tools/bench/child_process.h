// A program run beside the benchmark, with its standard input and output as pipes. It
// dies with this process.
#ifndef QUARRY_TOOLS_BENCH_CHILD_PROCESS_H_
#define QUARRY_TOOLS_BENCH_CHILD_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace quarry::bench {

class ChildProcess {
 public:
  // argv[0] is looked up in PATH when it has no slash. Standard error is inherited.
  // Start it from a thread that lives as long as the child: the kernel kills the child
  // when that thread ends.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const std::vector<std::string>& argv);
  // Stops it if need be.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  absl::Status WriteLine(const std::string& line);
  // Without the newline. Unavailable when the output ends before, DeadlineExceeded.
  absl::StatusOr<std::string> ReadLine(int timeout_ms);
  // All that is left until its end.
  absl::StatusOr<std::string> ReadAll(int timeout_ms);
  // Two ways to end it: Stop asks by SIGTERM, Finish by the end of its input. Either way
  // SIGKILL follows when it does not go in time. Not OK when it did not exit with 0.
  absl::Status Stop(int timeout_ms);
  absl::Status Finish(int timeout_ms);

 private:
  ChildProcess(std::string name, pid_t pid, int in, int out) : name_(std::move(name)), pid_(pid), in_(in), out_(out) {}
  absl::Status WaitOrKill(int timeout_ms);
  // More output into buffer_; OutOfRange at its end.
  absl::Status Fill(int64_t deadline_ns);

  const std::string name_;
  pid_t pid_;  // 0 when it has been waited for
  int in_;     // -1 when closed
  int out_;
  std::string buffer_;
};

// The folder that holds the running program.
std::string ProgramFolder();

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_CHILD_PROCESS_H_
