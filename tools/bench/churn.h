// Stores small blocks at a steady pace, so that there are events to be watched.
#ifndef QUARRY_TOOLS_BENCH_CHURN_H_
#define QUARRY_TOOLS_BENCH_CHURN_H_

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "quarry/client.h"

namespace quarry::bench {

// At work while it lives, with a client of its own.
class Churn {
 public:
  static absl::StatusOr<std::unique_ptr<Churn>> Start(const std::string& server, uint32_t blocks_per_s);
  ~Churn();

  // Ends it. Its first error.
  absl::Status Stop();

 private:
  Churn() = default;
  void Run(uint32_t blocks_per_s);

  std::vector<std::byte> block_;
  std::unique_ptr<Client> client_;
  Namespace ns_;
  MemoryRegion region_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;  // guarded by mutex_
  absl::Status failed_;    // of the thread, until it is joined
  std::thread thread_;
};

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_CHURN_H_
