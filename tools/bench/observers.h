// Those who look on while engines work: watchers that are slow, a scraper, a poller of Stats.
#ifndef QUARRY_TOOLS_BENCH_OBSERVERS_H_
#define QUARRY_TOOLS_BENCH_OBSERVERS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "tools/bench/grpc.h"

namespace quarry::bench {

// At work while it lives. Each watcher takes one event a second.
class Observers {
 public:
  struct Counts {
    uint64_t scrapes = 0;
    uint64_t stats = 0;
    uint64_t events = 0;
  };

  Observers(const GrpcOptions& options, std::string grpc, std::string metrics);
  ~Observers();
  Observers(const Observers&) = delete;
  Observers& operator=(const Observers&) = delete;

  // Ends them. The first error of any.
  absl::Status Stop(Counts* counts);

 private:
  void Watch();
  void Scrape();
  void PollStats();
  // False: it is time to end.
  bool Pause();
  void Failed(const absl::Status& status);

  const std::string grpc_;
  const std::string metrics_;
  struct Shared;
  std::unique_ptr<Shared> shared_;
  std::vector<std::thread> threads_;
};

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_OBSERVERS_H_
