// An epoll loop on its own thread: file descriptors, timers and posted functions.
#ifndef QUARRY_COMMON_NET_EVENT_LOOP_H_
#define QUARRY_COMMON_NET_EVENT_LOOP_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "common/clock.h"
#include "common/net/spin_budget.h"

struct epoll_event;

namespace quarry {

// Receives the events of one file descriptor, on the loop's thread.
class FdHandler {
 public:
  virtual ~FdHandler() = default;
  // `events` is a set of EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP, EPOLLRDHUP.
  virtual void OnEvents(uint32_t events) = 0;
};

class EventLoop {
 public:
  using Task = std::function<void()>;
  using TimerId = uint64_t;  // never 0

  // Starts the thread; `name` (15 characters at most) is shown by debuggers and top. Where
  // events follow each other within `most_spin_ns`, the thread stays awake between them.
  explicit EventLoop(std::string name, int64_t most_spin_ns = 0);
  // Stops: tasks already posted run, then the thread is joined. Not from the loop itself.
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  bool InLoop() const { return std::this_thread::get_id() == thread_.get_id(); }

  // Any thread. Runs `task` on the loop's thread, after the current one when called there.
  void Post(Task task);
  // Any thread. Runs `task` now when on the loop's thread, else posts it and waits.
  void Run(const Task& task);

  // The rest: on the loop's thread only.

  // `handler` stays valid until Remove. Level-triggered.
  void Add(int fd, uint32_t events, FdHandler* handler);
  // Also on another thread that knows that the loop is not removing it.
  void Modify(int fd, uint32_t events, FdHandler* handler);
  // No event of `handler` is delivered afterwards, not even one of the current round.
  void Remove(int fd, FdHandler* handler);

  TimerId After(int64_t delay_ns, Task task);
  void CancelTimer(TimerId id);

 private:
  void Main();
  // Like epoll_wait, which may first be called often instead of once.
  int Wait(epoll_event* events, int timeout_ms);
  void RunPosted();
  int64_t NextTimerDelayNs() const;
  void RunTimers();
  void Wake();

  const std::string name_;
  SpinBudget spin_;
  int epoll_fd_;
  int wake_fd_;
  std::mutex mutex_;
  std::vector<Task> posted_;   // guarded by mutex_
  bool wake_pending_ = false;  // guarded by mutex_
  std::atomic<bool> stopping_{false};
  // Handlers removed while a batch of events is being delivered.
  std::unordered_set<FdHandler*> removed_;
  std::map<std::pair<int64_t, TimerId>, Task> timers_;
  std::unordered_map<TimerId, int64_t> timer_due_;
  TimerId next_timer_ = 1;
  std::thread thread_;  // last: starts when all else stands
};

}  // namespace quarry

#endif  // QUARRY_COMMON_NET_EVENT_LOOP_H_
