// Ends an attempt to connect from another thread.
#ifndef QUARRY_CLIENT_DIAL_INTERRUPT_H_
#define QUARRY_CLIENT_DIAL_INTERRUPT_H_

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <mutex>
#include <vector>

#include "common/net/socket.h"

namespace quarry {

// Thread-safe. Holds duplicates, so it does not matter when the sockets are closed. Where
// no descriptor is left there is no interruption, and the attempt has its deadline still.
class DialInterrupt {
 public:
  DialInterrupt() : event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

  // Can be read once interrupted: for Dial, whose socket nobody else knows yet.
  int event_fd() const { return event_.get(); }
  // From now on Interrupt ends what is under way on the connected socket.
  void Watch(int fd) {
    std::lock_guard lock(mutex_);
    if (interrupted_) shutdown(fd, SHUT_RDWR);
    if (UniqueFd copy(fcntl(fd, F_DUPFD_CLOEXEC, 0)); copy) watched_.push_back(std::move(copy));
  }
  // The attempt is over.
  void Forget() {
    std::lock_guard lock(mutex_);
    watched_.clear();
  }
  // For good: later attempts end as well.
  void Interrupt() {
    std::lock_guard lock(mutex_);
    interrupted_ = true;
    if (event_) eventfd_write(event_.get(), 1);
    for (const UniqueFd& fd : watched_) shutdown(fd.get(), SHUT_RDWR);
  }

 private:
  const UniqueFd event_;
  std::mutex mutex_;
  bool interrupted_ = false;       // guarded by mutex_
  std::vector<UniqueFd> watched_;  // guarded by mutex_
};

}  // namespace quarry

#endif  // QUARRY_CLIENT_DIAL_INTERRUPT_H_
