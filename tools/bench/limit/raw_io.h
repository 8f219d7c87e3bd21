// Direct IO by io_uring, or by libaio where that is refused: one thread, many requests in flight.
#ifndef LIMIT_RAW_IO_H_
#define LIMIT_RAW_IO_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace limit {

// Not thread-safe. What fails ends the program with a message.
class RawIo {
 public:
  enum class Kind : uint8_t { kRead, kWrite, kSync };

  // `name`: io_uring, libaio, or auto for the first of them that works. At most `depth` requests
  // are in flight at a time.
  static std::unique_ptr<RawIo> Open(const std::string& name, uint32_t depth);
  virtual ~RawIo() = default;

  virtual const char* name() const = 0;
  // A sync is of the data of `fd`, and needs no memory. `bytes` must be moved whole.
  virtual void Submit(Kind kind, int fd, char* memory, size_t bytes, uint64_t offset, uint32_t tag) = 0;
  // Waits for one to end at least; appends the tags of those that have.
  virtual void Wait(std::vector<uint32_t>* tags) = 0;
};

}  // namespace limit

#endif  // LIMIT_RAW_IO_H_
