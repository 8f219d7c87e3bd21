// The server under test: a private quarryd, or one that runs already.
#ifndef QUARRY_TOOLS_BENCH_SERVER_PROCESS_H_
#define QUARRY_TOOLS_BENCH_SERVER_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/child_process.h"
#include "tools/bench/scratch_dir.h"

namespace quarry::bench {

struct ServerOptions {
  std::string server;    // transfer address of a running one; empty: start a private one
  std::string grpc;      // of a running one; empty: no figures that need its Stats
  std::string metrics;   // of a running one; empty: nothing that needs it
  pid_t server_pid = 0;  // of a running one on this host; 0: no CPU figures
  std::string quarryd;   // program of the private one; empty: beside this program
  std::vector<std::string> quarryd_flags = {"--log-level=warn"};
  uint64_t memory_bytes = uint64_t{4} << 30;  // of the private one, all together
  // SSD tier of the private one.
  std::string ssd_dir;     // where it gets a directory of its own, removed at the end; empty: no SSD
  uint64_t ssd_bytes = 0;  // of its blocks; 0: not chosen yet
  std::string ssd_io = "auto";
  uint64_t ssd_write_budget_bytes = 0;  // a day; 0: without a bound
  uint64_t ssd_write_burst_bytes = 0;   // of it, saved up at most; 0: the server's choice
};

class ServerUnderTest {
 public:
  // Starts it where needed and waits until it is ready. Call from the main thread, which
  // a private server does not outlive.
  static absl::StatusOr<std::unique_ptr<ServerUnderTest>> Start(const ServerOptions& options);

  const std::string& transfer() const { return transfer_; }
  const std::string& grpc() const { return grpc_; }        // empty: not known
  const std::string& metrics() const { return metrics_; }  // empty: not known
  // User and system time so far; nullopt when the process is not known.
  std::optional<double> CpuSeconds() const;
  // Stops a private one and starts it again: on its SSD is what was there, its memory is empty,
  // and its addresses are others.
  absl::Status Restart();
  // Stops a private one; not OK when it did not end well.
  absl::Status Stop();

 private:
  ServerUnderTest() = default;
  absl::Status Launch();

  std::vector<std::string> argv_;  // of a private one
  std::unique_ptr<ScratchDir> socket_dir_;
  std::unique_ptr<ScratchDir> ssd_dir_;
  std::unique_ptr<ChildProcess> process_;
  pid_t pid_ = 0;
  std::string transfer_;
  std::string grpc_;
  std::string metrics_;
};

// The value of `key` in "quarryd ready grpc=HOST:PORT transfer=HOST:PORT ..."; empty: none.
std::string ReadyField(const std::string& line, const std::string& key);

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_SERVER_PROCESS_H_
