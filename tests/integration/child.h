// A process of its own for a client that is going to be killed or stopped.
#ifndef QUARRY_TESTS_INTEGRATION_CHILD_H_
#define QUARRY_TESTS_INTEGRATION_CHILD_H_

#include <sys/types.h>

#include <functional>
#include <string>

namespace quarry::testing {

// One end of the line between a test and its child.
class Line {
 public:
  explicit Line(int fd) : fd_(fd) {}
  // Of at most 64 KiB. A peer that is gone hears nothing.
  void Say(const std::string& message) const;
  // Waits for the next message; empty when the peer is gone.
  std::string Hear() const;
  int fd() const { return fd_; }

 private:
  int fd_;
};

// A fork of the test that runs `body` and exits with what that returns. To be made before
// the test has threads, which means before its first client.
class Child {
 public:
  explicit Child(const std::function<int(const Line&)>& body);
  // Kills it if it is still there.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  const Line& line() const { return line_; }
  void Signal(int signal) const;
  void Kill();
  // Its status, as waitpid gives it.
  int Wait();

 private:
  pid_t pid_ = -1;
  Line line_{-1};
};

}  // namespace quarry::testing

#endif  // QUARRY_TESTS_INTEGRATION_CHILD_H_
