#include "common/net/event_loop.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace quarry {
namespace {

constexpr int kEventsPerRound = 64;

// Without its descriptors a loop cannot exist, and nobody could go on without it.
int RequireFd(int fd, const char* what) {
  if (fd < 0) {
    std::perror(what);
    std::abort();
  }
  return fd;
}

epoll_event MakeEvent(uint32_t events, FdHandler* handler) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = handler;
  return event;
}

}  // namespace

EventLoop::EventLoop(std::string name, int64_t most_spin_ns)
    : name_(std::move(name)),
      spin_(most_spin_ns),
      epoll_fd_(RequireFd(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
      wake_fd_(RequireFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")) {
  epoll_event event = MakeEvent(EPOLLIN, nullptr);  // nullptr: the wake-up
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, wake_fd_, &event) != 0) RequireFd(-1, "epoll_ctl");
  thread_ = std::thread([this] { Main(); });
  pthread_setname_np(thread_.native_handle(), name_.substr(0, 15).c_str());
}

EventLoop::~EventLoop() {
  stopping_.store(true, std::memory_order_release);
  Wake();
  thread_.join();
  close(wake_fd_);
  close(epoll_fd_);
}

void EventLoop::Wake() {
  const uint64_t one = 1;
  // Fails only when the counter is full, which is as good as a wake-up.
  [[maybe_unused]] ssize_t written = write(wake_fd_, &one, sizeof one);
}

void EventLoop::Post(Task task) {
  bool wake;
  {
    std::lock_guard lock(mutex_);
    posted_.push_back(std::move(task));
    // The loop looks at posted_ after every round, so its own posts need no wake-up.
    wake = !wake_pending_ && !InLoop();
    if (wake) wake_pending_ = true;
  }
  if (wake) Wake();
}

void EventLoop::Run(const Task& task) {
  if (InLoop()) {
    task();
    return;
  }
  std::mutex mutex;
  std::condition_variable done_cv;
  bool done = false;
  Post([&] {
    task();
    // Notified under the lock: the waiter's frame is gone once it sees `done`.
    std::lock_guard lock(mutex);
    done = true;
    done_cv.notify_one();
  });
  std::unique_lock lock(mutex);
  done_cv.wait(lock, [&] { return done; });
}

void EventLoop::Add(int fd, uint32_t events, FdHandler* handler) {
  epoll_event event = MakeEvent(events, handler);
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) RequireFd(-1, "epoll_ctl add");
}

void EventLoop::Modify(int fd, uint32_t events, FdHandler* handler) {
  epoll_event event = MakeEvent(events, handler);
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, fd, &event) != 0) RequireFd(-1, "epoll_ctl modify");
}

void EventLoop::Remove(int fd, FdHandler* handler) {
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr) != 0) RequireFd(-1, "epoll_ctl remove");
  removed_.insert(handler);
}

EventLoop::TimerId EventLoop::After(int64_t delay_ns, Task task) {
  const TimerId id = next_timer_++;
  const int64_t due = Clock::Real()->NowNs() + delay_ns;
  timers_.emplace(std::pair(due, id), std::move(task));
  timer_due_.emplace(id, due);
  return id;
}

void EventLoop::CancelTimer(TimerId id) {
  auto it = timer_due_.find(id);
  if (it == timer_due_.end()) return;
  timers_.erase({it->second, id});
  timer_due_.erase(it);
}

int64_t EventLoop::NextTimerDelayNs() const {
  if (timers_.empty()) return -1;
  const int64_t delay = timers_.begin()->first.first - Clock::Real()->NowNs();
  return delay > 0 ? delay : 0;
}

void EventLoop::RunTimers() {
  if (timers_.empty()) return;
  const int64_t now = Clock::Real()->NowNs();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    auto node = timers_.extract(timers_.begin());
    timer_due_.erase(node.key().second);
    node.mapped()();
  }
}

void EventLoop::RunPosted() {
  std::vector<Task> tasks;
  {
    std::lock_guard lock(mutex_);
    tasks.swap(posted_);
    wake_pending_ = false;
  }
  for (Task& task : tasks) task();
}

int EventLoop::Wait(epoll_event* events, int timeout_ms) {
  int count = 0;
  const auto wait = [&](int at_most_ms) {
    count = epoll_wait(epoll_fd_, events, kEventsPerRound, at_most_ms);
    if (count < 0 && errno != EINTR) RequireFd(-1, "epoll_wait");
    return count != 0;
  };
  if (timeout_ms == 0) {
    wait(0);
  } else {
    const int64_t longest_ns = timeout_ms < 0 ? INT64_MAX : timeout_ms * kNsPerMs;
    spin_.Wait(
        longest_ns, [&] { return wait(0); }, [&] { wait(timeout_ms); });
  }
  return count;
}

void EventLoop::Main() {
  epoll_event events[kEventsPerRound];
  while (true) {
    int64_t delay_ns = NextTimerDelayNs();
    {
      std::lock_guard lock(mutex_);
      if (!posted_.empty()) delay_ns = 0;
    }
    if (stopping_.load(std::memory_order_acquire)) delay_ns = 0;
    // Rounded up, so that a timer is due when the wait ends.
    const int timeout_ms =
        delay_ns < 0 ? -1 : static_cast<int>(std::min<int64_t>((delay_ns + kNsPerMs - 1) / kNsPerMs, 3'600'000));
    const int count = Wait(events, timeout_ms);
    removed_.clear();  // those of before are not in this round
    for (int i = 0; i < count; ++i) {
      auto* handler = static_cast<FdHandler*>(events[i].data.ptr);
      if (handler == nullptr) {
        uint64_t ignored;
        [[maybe_unused]] ssize_t got = read(wake_fd_, &ignored, sizeof ignored);
      } else if (!removed_.contains(handler)) {
        handler->OnEvents(events[i].events);
      }
    }
    RunTimers();
    RunPosted();
    if (stopping_.load(std::memory_order_acquire)) {
      std::lock_guard lock(mutex_);
      if (posted_.empty()) return;
    }
  }
}

}  // namespace quarry
