// Stands between one client and its server, and holds up the payload on demand.
#ifndef QUARRY_TESTS_INTEGRATION_RELAY_H_
#define QUARRY_TESTS_INTEGRATION_RELAY_H_

#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <thread>

#include "common/net/socket.h"

namespace quarry::testing {

// Forwards every connection. The first of a session is its control stream, which is never
// held up; the other ones are its data streams.
class Relay {
 public:
  enum Direction : uint8_t { kToClient = 0, kToServer = 1 };

  explicit Relay(std::string server, uint32_t data_streams = 1);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  const std::string& address() const { return address_; }
  // From now on the data streams together let so many more bytes pass.
  void Limit(Direction direction, uint64_t bytes);
  void Open(Direction direction);
  // Waits until bytes came that may not pass; ends the process after a minute.
  void WaitUntilHeldUp(Direction direction);

 private:
  static constexpr size_t kMostWaiting = 64 << 10;

  struct Flow {  // one direction of a connection
    int from = -1;
    int to = -1;
    std::string waiting;  // received and not sent
    bool ended = false;   // nothing more will be received
    bool MayReceive() const { return !ended && waiting.size() < kMostWaiting; }
  };
  struct Connection {
    UniqueFd client;
    UniqueFd server;
    bool data = false;
    Flow flows[2];  // by Direction
    bool broken = false;
  };

  void Main();
  void Accept();
  // Moves what can be moved now.
  void Move(Connection* connection, Direction direction);
  // How many bytes of the flow may be sent now.
  size_t Allowed(const Connection& connection, Direction direction) const;
  void Wake() const;

  const std::string server_;
  const uint32_t streams_;  // of a session
  UniqueFd listener_;
  UniqueFd wake_;
  std::string address_;

  std::mutex mutex_;
  std::condition_variable held_up_;
  // The rest is guarded by mutex_.
  bool stopping_ = false;
  uint64_t left_[2] = {UINT64_MAX, UINT64_MAX};  // UINT64_MAX: no limit
  uint64_t accepted_ = 0;
  std::list<Connection> connections_;

  std::thread thread_;
};

}  // namespace quarry::testing

#endif  // QUARRY_TESTS_INTEGRATION_RELAY_H_
