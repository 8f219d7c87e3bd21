// A connection to Redis, with as much of its protocol as the load program speaks.
#ifndef QUARRY_TOOLS_PEERS_REDIS_STREAM_H_
#define QUARRY_TOOLS_PEERS_REDIS_STREAM_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/net/socket.h"

namespace quarry::peers {

// Blocking. Not thread-safe.
class RedisStream {
 public:
  static absl::StatusOr<std::unique_ptr<RedisStream>> Connect(const std::string& address);

  // All of it, `payload` from where it lies.
  absl::Status Send(absl::string_view head, absl::Span<const std::byte> payload = {}, absl::string_view tail = {});
  // A reply of one line, without its type's end. At most kAheadBytes.
  absl::StatusOr<std::string> ReceiveLine();
  // The number of a line of that type: ':' or '$'. An error reply, or a nil, is an error.
  absl::StatusOr<uint64_t> ReceiveNumber(char type);
  // The payload behind a '$' line, and the line end behind it.
  absl::Status ReceiveInto(absl::Span<std::byte> payload);

 private:
  explicit RedisStream(UniqueFd fd) : fd_(std::move(fd)) {}
  // Reads at least one byte: into `payload` first, and what is beyond it into ahead_.
  // Returns how many went to `payload`.
  absl::StatusOr<size_t> Read(absl::Span<std::byte> payload);

  // Enough for the lines between two payloads; of what follows, little has to be copied.
  static constexpr size_t kAheadBytes = 128;
  UniqueFd fd_;
  std::array<char, kAheadBytes> ahead_;
  size_t ahead_begin_ = 0;
  size_t ahead_end_ = 0;
};

}  // namespace quarry::peers

#endif  // QUARRY_TOOLS_PEERS_REDIS_STREAM_H_
