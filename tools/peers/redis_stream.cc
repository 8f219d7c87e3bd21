#include "tools/peers/redis_stream.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"

namespace quarry::peers {
namespace {

constexpr int64_t kConnectTimeoutNs = 5'000'000'000;

iovec Piece(const void* base, size_t bytes) { return {const_cast<void*>(base), bytes}; }

}  // namespace

absl::StatusOr<std::unique_ptr<RedisStream>> RedisStream::Connect(const std::string& address) {
  auto fd = Dial(address, Clock::Real()->NowNs() + kConnectTimeoutNs);
  if (!fd.ok()) return fd.status();
  if (fcntl(fd->get(), F_SETFL, 0) != 0) return ErrnoStatus(errno, "fcntl");
  return std::unique_ptr<RedisStream>(new RedisStream(*std::move(fd)));
}

absl::Status RedisStream::Send(absl::string_view head, absl::Span<const std::byte> payload, absl::string_view tail) {
  std::array<iovec, 3> pieces = {Piece(head.data(), head.size()), Piece(payload.data(), payload.size()),
                                 Piece(tail.data(), tail.size())};
  size_t first = 0;
  while (true) {
    while (first < pieces.size() && pieces[first].iov_len == 0) ++first;
    if (first == pieces.size()) return absl::OkStatus();
    ssize_t sent = writev(fd_.get(), &pieces[first], static_cast<int>(pieces.size() - first));
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return ErrnoStatus(errno, "sending to redis");
    for (size_t i = first; i < pieces.size() && sent > 0; ++i) {
      const size_t done = std::min(pieces[i].iov_len, static_cast<size_t>(sent));
      pieces[i].iov_base = static_cast<char*>(pieces[i].iov_base) + done;
      pieces[i].iov_len -= done;
      sent -= static_cast<ssize_t>(done);
    }
  }
}

absl::StatusOr<size_t> RedisStream::Read(absl::Span<std::byte> payload) {
  if (ahead_begin_ == ahead_end_) ahead_begin_ = ahead_end_ = 0;
  const std::array<iovec, 2> pieces = {Piece(payload.data(), payload.size()),
                                       Piece(ahead_.data() + ahead_end_, ahead_.size() - ahead_end_)};
  ssize_t bytes;
  do {
    bytes = readv(fd_.get(), pieces.data(), static_cast<int>(pieces.size()));
  } while (bytes < 0 && errno == EINTR);
  if (bytes < 0) return ErrnoStatus(errno, "reading from redis");
  if (bytes == 0) return absl::UnavailableError("redis has closed the connection");
  const size_t to_payload = std::min(payload.size(), static_cast<size_t>(bytes));
  ahead_end_ += static_cast<size_t>(bytes) - to_payload;
  return to_payload;
}

absl::StatusOr<std::string> RedisStream::ReceiveLine() {
  while (true) {
    const absl::string_view ahead(ahead_.data() + ahead_begin_, ahead_end_ - ahead_begin_);
    if (const size_t end = ahead.find("\r\n"); end != absl::string_view::npos) {
      ahead_begin_ += end + 2;
      return std::string(ahead.substr(0, end));
    }
    if (ahead.size() == ahead_.size()) return absl::InternalError(absl::StrCat("redis said: ", ahead));
    std::memmove(ahead_.data(), ahead.data(), ahead.size());
    ahead_end_ = ahead.size();
    ahead_begin_ = 0;
    if (auto read = Read({}); !read.ok()) return read.status();
  }
}

absl::StatusOr<uint64_t> RedisStream::ReceiveNumber(char type) {
  auto line = ReceiveLine();
  if (!line.ok()) return line.status();
  uint64_t number = 0;
  if (line->empty() || line->front() != type || !absl::SimpleAtoi(line->substr(1), &number)) {
    return absl::InternalError(*line == "$-1" ? "a block is missing" : absl::StrCat("redis said: ", *line));
  }
  return number;
}

absl::Status RedisStream::ReceiveInto(absl::Span<std::byte> payload) {
  const size_t ahead = std::min(payload.size(), ahead_end_ - ahead_begin_);
  std::memcpy(payload.data(), ahead_.data() + ahead_begin_, ahead);
  ahead_begin_ += ahead;
  payload.remove_prefix(ahead);
  while (!payload.empty()) {
    auto read = Read(payload);
    if (!read.ok()) return read.status();
    payload.remove_prefix(*read);
  }
  auto end = ReceiveLine();
  if (!end.ok()) return end.status();
  return end->empty() ? absl::OkStatus() : absl::InternalError(absl::StrCat("redis said: ", *end));
}

}  // namespace quarry::peers
