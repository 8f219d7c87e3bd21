// A quarryd of a test's own, on loopback.
#ifndef QUARRY_TESTS_INTEGRATION_PRIVATE_SERVER_H_
#define QUARRY_TESTS_INTEGRATION_PRIVATE_SERVER_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace quarry::testing {

class PrivateServer {
 public:
  struct Flags {
    std::string transfer = "127.0.0.1:0";  // may name a port that was used before
    std::string socket = "none";
    std::vector<std::string> more;
  };

  // Starts it and waits for its ready line.
  PrivateServer(const std::string& memory, const Flags& flags);
  explicit PrivateServer(const std::string& memory) : PrivateServer(memory, Flags{}) {}
  // Kills it if Stop has not ended it.
  ~PrivateServer();
  PrivateServer(const PrivateServer&) = delete;
  PrivateServer& operator=(const PrivateServer&) = delete;

  const std::string& address() const { return address_; }
  pid_t pid() const { return pid_; }
  // With SIGSTOP it has stopped when this returns.
  void Signal(int signal) const;
  void Kill();
  // SIGTERM; the exit status, 0 when it drained well.
  int Stop();
  int Wait();

  using Metrics = std::map<std::string, double>;  // by series, labels included
  Metrics Scrape() const;
  double Metric(const std::string& series) const;
  // Until the condition holds, for at most a minute: then false, with the last metrics.
  ::testing::AssertionResult Until(const std::function<bool(const Metrics&)>& condition) const;
  // Until no request, lease or put is left, and so many sessions.
  ::testing::AssertionResult BecomesIdle(int sessions) const;

 private:
  pid_t pid_ = -1;
  int stdout_ = -1;
  std::string address_;
  std::string metrics_address_;
};

inline constexpr char kUsedBytes[] = "quarry_used_bytes{tier=\"dram\"}";
inline constexpr char kInFlightBytes[] = "quarry_transfer_in_flight_bytes";
inline constexpr char kInFlightPuts[] = "quarry_in_flight_puts";
inline constexpr char kQueued[] = "quarry_transfers_queued";
inline constexpr char kLeases[] = "quarry_leases";

}  // namespace quarry::testing

#endif  // QUARRY_TESTS_INTEGRATION_PRIVATE_SERVER_H_
