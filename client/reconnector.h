// Makes attempts to connect, apart from the loops, until one succeeds.
#ifndef QUARRY_CLIENT_RECONNECTOR_H_
#define QUARRY_CLIENT_RECONNECTOR_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "client/backoff.h"
#include "client/session.h"

namespace quarry {

// A thread exists only while there is something to do.
class Reconnector {
 public:
  // `attempt` connects and is true when that worked. Called without locks, on the
  // reconnector's thread, after each wait of `backoff`, which starts over when the
  // connection has lasted for `stable_ms`.
  Reconnector(Backoff backoff, uint32_t stable_ms, std::function<bool()> attempt);
  // After Stop, or when Replace was never called.
  ~Reconnector() = default;

  // `broken` is disposed of and then replaced. On the thread of the loop that carries the
  // control streams.
  void Replace(std::shared_ptr<Session> broken);
  // Returns when the attempt under way has ended. No further Replace does anything but
  // keep the session for nobody: call it when none can come.
  void Stop();

 private:
  void Main();
  void DisposeBroken();
  // False when stopping.
  bool WaitBeforeAttempt();

  Backoff backoff_;       // the thread's only
  int64_t connected_ns_;  // the thread's only
  const int64_t stable_ns_;
  const std::function<bool()> attempt_;

  std::mutex mutex_;
  std::condition_variable stop_requested_;
  bool stopping_ = false;                         // guarded by mutex_
  bool running_ = false;                          // guarded by mutex_
  std::vector<std::shared_ptr<Session>> broken_;  // guarded by mutex_
  std::thread thread_;                            // guarded by mutex_
};

}  // namespace quarry

#endif  // QUARRY_CLIENT_RECONNECTOR_H_
