// A quarryd of a test's own, on loopback.
#ifndef QUARRY_TESTS_INTEGRATION_PRIVATE_SERVER_H_
#define QUARRY_TESTS_INTEGRATION_PRIVATE_SERVER_H_

#include <sys/types.h>

#include <string>

namespace quarry::testing {

class PrivateServer {
 public:
  // Starts it and waits for its ready line. `transfer` may name a port that was used before.
  explicit PrivateServer(const std::string& memory, const std::string& transfer = "127.0.0.1:0");
  // Kills it if Stop has not ended it.
  ~PrivateServer();
  PrivateServer(const PrivateServer&) = delete;
  PrivateServer& operator=(const PrivateServer&) = delete;

  const std::string& address() const { return address_; }
  void Signal(int signal) const;
  void Kill();
  // SIGTERM; the exit status, 0 when it drained well.
  int Stop();

 private:
  int Wait();

  pid_t pid_ = -1;
  int stdout_ = -1;
  std::string address_;
};

}  // namespace quarry::testing

#endif  // QUARRY_TESTS_INTEGRATION_PRIVATE_SERVER_H_
