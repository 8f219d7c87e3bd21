// IO by threads that block in it: works everywhere.
#ifndef QUARRY_SERVER_SSD_IO_THREAD_ENGINE_H_
#define QUARRY_SERVER_SSD_IO_THREAD_ENGINE_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "server/ssd/io/io_engine.h"

namespace quarry::server {

class ThreadEngine final : public IoEngine {
 public:
  // More threads than this keep no disk busier.
  static constexpr uint32_t kMaxThreads = 32;

  // min(depth, max_threads) threads, of which each carries out one request at a time.
  explicit ThreadEngine(uint32_t depth, uint32_t max_threads = kMaxThreads);
  // Carries out what was submitted.
  ~ThreadEngine() override;

  absl::string_view name() const override { return "threads"; }
  void Submit(IoRequest request) override;
  uint32_t depth() const override { return depth_; }

 private:
  void Run();

  const uint32_t depth_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<IoRequest> waiting_;  // guarded by mutex_, as is stopping_
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SSD_IO_THREAD_ENGINE_H_
