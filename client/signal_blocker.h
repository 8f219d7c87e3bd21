// Threads of a library must not run their host's signal handlers.
#ifndef QUARRY_CLIENT_SIGNAL_BLOCKER_H_
#define QUARRY_CLIENT_SIGNAL_BLOCKER_H_

#include <pthread.h>
#include <signal.h>

namespace quarry {

// Blocks all signals of the calling thread for its scope: threads started within inherit
// that for good.
class SignalBlocker {
 public:
  SignalBlocker() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalBlocker() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalBlocker(const SignalBlocker&) = delete;
  SignalBlocker& operator=(const SignalBlocker&) = delete;

 private:
  sigset_t before_;
};

}  // namespace quarry

#endif  // QUARRY_CLIENT_SIGNAL_BLOCKER_H_
