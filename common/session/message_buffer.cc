#include "common/session/message_buffer.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/net/socket.h"
#include "common/session/messages.h"

namespace quarry::wire {

absl::Status MessageBuffer::Fill(int fd) {
  last_ = 0;
  if (begin_ == end_) begin_ = end_ = 0;
  if (buffer_.size() - end_ < kReadBytes) {
    std::copy(buffer_.begin() + static_cast<ptrdiff_t>(begin_), buffer_.begin() + static_cast<ptrdiff_t>(end_),
              buffer_.begin());
    end_ -= begin_;
    begin_ = 0;
    // Grows with what has come, not with what a length promises.
    const size_t room = std::max(end_ + kReadBytes, std::min(2 * end_, needed_));
    if (buffer_.size() < room) buffer_.resize(room);
  }
  while (true) {
    const ssize_t got = recv(fd, buffer_.data() + end_, buffer_.size() - end_, 0);
    if (got > 0) {
      end_ += static_cast<size_t>(got);
      return absl::OkStatus();
    }
    if (got == 0) return absl::UnavailableError("the peer closed the connection");
    if (errno == EAGAIN) return absl::OkStatus();
    if (errno != EINTR) return ErrnoStatus(errno, "recv");
  }
}

bool MessageBuffer::Take(size_t bytes, absl::string_view* taken) {
  if (end_ - begin_ < bytes) return false;
  *taken = {buffer_.data() + begin_, bytes};
  begin_ += bytes;
  return true;
}

bool MessageBuffer::Next(absl::string_view* message, absl::Status* status) {
  uint32_t length = 0;
  if (end_ - begin_ < sizeof length) return false;
  std::memcpy(&length, buffer_.data() + begin_, sizeof length);
  if (length == 0 || length > kMaxMessageBytes) {
    *status =
        absl::InvalidArgumentError(absl::StrCat("message length is ", length, ", must be 1 to ", kMaxMessageBytes));
    return false;
  }
  needed_ = sizeof length + length;
  if (end_ - begin_ < needed_) return false;
  *message = {buffer_.data() + begin_ + sizeof length, length};
  begin_ += needed_;
  last_ = std::exchange(needed_, 0);
  return true;
}

}  // namespace quarry::wire
