// Runs quarry-bench-limit, and iperf3 as a check on it.
#ifndef QUARRY_TOOLS_BENCH_LIMIT_PROCESS_H_
#define QUARRY_TOOLS_BENCH_LIMIT_PROCESS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/child_process.h"

namespace quarry::bench {

struct LimitRound {
  double gb_per_s = 0;  // stream, disk
  double p50_us = 0;    // echo
  double p99_us = 0;
  uint64_t ops = 0;
  int buffer_bytes = 0;   // stream: the socket buffers in use
  std::string io_engine;  // disk
};

class LimitProcess {
 public:
  // Arguments as quarry-bench-limit takes them. Waits until it is ready (and calibrated).
  static absl::StatusOr<std::unique_ptr<LimitProcess>> Start(const std::vector<std::string>& arguments);
  ~LimitProcess();
  absl::StatusOr<LimitRound> Run(double seconds);

 private:
  explicit LimitProcess(std::unique_ptr<ChildProcess> process) : process_(std::move(process)) {}
  std::unique_ptr<ChildProcess> process_;
};

// GB/s of a short iperf3 run on loopback; nullopt when iperf3 is not installed.
absl::StatusOr<std::optional<double>> RunIperf3(uint32_t streams);

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_LIMIT_PROCESS_H_
