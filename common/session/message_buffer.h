// Takes length-framed messages off a socket.
#ifndef QUARRY_COMMON_SESSION_MESSAGE_BUFFER_H_
#define QUARRY_COMMON_SESSION_MESSAGE_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace quarry::wire {

// Not thread-safe. Holds at most one message and what came with it.
class MessageBuffer {
 public:
  // Reads what the socket has, up to the buffer's room. Unavailable: the peer closed.
  absl::Status Fill(int fd);
  // The next whole message; valid until Fill or Next. False: not there yet. InvalidArgument
  // in `status` for a length that is not allowed.
  bool Next(absl::string_view* message, absl::Status* status);
  // Gives the message that Next has just given once more.
  void PutBack() { begin_ -= std::exchange(last_, 0); }
  // The same for bytes without a length: the preface.
  bool Take(size_t bytes, absl::string_view* taken);
  bool empty() const { return begin_ == end_; }
  // Length of the message that Next found to be not all there; 0: not even its length is.
  size_t awaited() const { return needed_ == 0 ? 0 : needed_ - sizeof(uint32_t); }

 private:
  static constexpr size_t kReadBytes = 64 << 10;

  std::vector<char> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t needed_ = 0;  // of the message that has begun, with its length
  size_t last_ = 0;    // of the message that Next has given, with its length
};

}  // namespace quarry::wire

#endif  // QUARRY_COMMON_SESSION_MESSAGE_BUFFER_H_
