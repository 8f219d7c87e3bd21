// How reads and writes reach a disk. An engine carries out what it is given and decides
// nothing: which engine a kernel allows is found out once, at the start (CreateIoEngine).
#ifndef QUARRY_SERVER_SSD_IO_IO_ENGINE_H_
#define QUARRY_SERVER_SSD_IO_IO_ENGINE_H_

#include <sys/uio.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace quarry::server {

// One read, write or sync of a file. With O_DIRECT, offset, addresses and lengths are
// multiples of 4 KiB.
struct IoRequest {
  enum class Kind : uint8_t { kRead, kWrite, kSync };  // kSync: fdatasync

  Kind kind = Kind::kRead;
  int fd = -1;
  uint64_t offset = 0;  // bytes
  // Where the bytes go or come from, in order; at most IOV_MAX. The memory is the caller's
  // and stays until `done`.
  std::vector<iovec> parts;
  // Called once, on a thread of the engine: bytes moved, which may be fewer than asked for,
  // or -errno. Must not block; may submit.
  std::function<void(int64_t)> done;
};

// Thread-safe. Destroyed when nothing is in flight.
class IoEngine {
 public:
  virtual ~IoEngine() = default;
  // "io_uring", "libaio" or "threads".
  virtual absl::string_view name() const = 0;
  // The caller keeps at most depth() requests in flight; the engine never blocks on the disk
  // in here as long as it does.
  virtual void Submit(IoRequest request) = 0;
  virtual uint32_t depth() const = 0;
};

// The largest depth that can be asked for.
inline constexpr uint32_t kMaxIoDepth = 4096;

enum class IoEngineKind : uint8_t { kAuto, kUring, kAio, kThreads };

// "auto", "io_uring", "libaio", "threads". InvalidArgument lists them.
absl::StatusOr<IoEngineKind> ParseIoEngineKind(absl::string_view text);

struct IoEngineChoice {
  std::unique_ptr<IoEngine> engine;
  // Why those that are faster were passed over, for the log; empty: none was.
  std::string reason;
};

// kAuto: the first of io_uring, libaio, threads that works here (seccomp profiles commonly
// forbid io_uring, and some kernels have it switched off). Unavailable: the kind that was
// asked for does not work, and why. InvalidArgument: a depth of 0 or more than kMaxIoDepth.
absl::StatusOr<IoEngineChoice> CreateIoEngine(IoEngineKind kind, uint32_t depth);

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SSD_IO_IO_ENGINE_H_
