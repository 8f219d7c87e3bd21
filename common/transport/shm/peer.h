// The process at the other end of a Unix socket, by the kernel's word.
#ifndef QUARRY_COMMON_TRANSPORT_SHM_PEER_H_
#define QUARRY_COMMON_TRANSPORT_SHM_PEER_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/net/socket.h"

namespace quarry::transport::shm {

// Thread-safe.
class Peer {
 public:
  // Of a connected Unix socket.
  static Peer Of(int socket);

  pid_t pid() const { return pid_; }  // 0: not in sight, as across PID namespaces
  uid_t uid() const { return uid_; }
  // Can be read once the process has ended; -1: there is none.
  int pidfd() const { return pidfd_.get(); }
  // Whether it is known to have ended.
  bool dead() const;

  // OK: the peer is another process of this user, or this one, and this process can read its
  // memory: at `address` lie the bytes of `nonce`, which was only told to whoever speaks on the
  // socket. PermissionDenied says why not.
  absl::Status Probe(uint64_t address, absl::string_view nonce) const;

 private:
  pid_t pid_ = 0;
  uid_t uid_ = static_cast<uid_t>(-1);
  UniqueFd pidfd_;
};

// In the client: lets the server at the other end reach this process's memory where the Yama
// module asks for that to be said.
void AllowPeerToReach(const Peer& server);

}  // namespace quarry::transport::shm

#endif  // QUARRY_COMMON_TRANSPORT_SHM_PEER_H_
