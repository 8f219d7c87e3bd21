// Hand-made ends of a shared-memory stream, that say exactly what they are told to.
#ifndef QUARRY_TESTS_UNIT_TRANSPORT_SHM_PEERS_H_
#define QUARRY_TESTS_UNIT_TRANSPORT_SHM_PEERS_H_

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/net/socket.h"
#include "common/transport/shm/board.h"
#include "common/transport/shm/message.h"

namespace quarry::transport::shm {

// One end of a connection; ends the process when the other one is not there.
class RawEnd {
 public:
  explicit RawEnd(UniqueFd fd) : fd_(std::move(fd)) {}

  void Send(const Message& message, const std::vector<UniqueFd>& fds = {});
  void SendBytes(const std::string& bytes, const std::vector<UniqueFd>& fds = {});
  // The next message; false: the peer has closed. The body lives until the next call.
  bool Receive(Message* message);
  std::deque<UniqueFd>& fds() { return fds_; }
  int fd() const { return fd_.get(); }
  void Close() { fd_ = UniqueFd(); }

 private:
  UniqueFd fd_;
  std::string body_;
  std::deque<UniqueFd> fds_;
};

UniqueFd Duplicate(int fd);
// A memfd of so many bytes, with seals that keep it from shrinking or without, all of it there
// or none.
UniqueFd Memfd(size_t bytes, bool sealed, bool allocated);

}  // namespace quarry::transport::shm

#endif  // QUARRY_TESTS_UNIT_TRANSPORT_SHM_PEERS_H_
