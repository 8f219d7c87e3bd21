// Blocks between a disk and memory, by direct IO: nothing but reads or writes.
#ifndef LIMIT_DISK_LIMIT_H_
#define LIMIT_DISK_LIMIT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tools/bench/limit/raw_io.h"
#include "tools/bench/limit/sockets.h"

namespace limit {

struct DiskOptions {
  std::string dir;
  bool write = false;
  std::string io = "auto";
  uint64_t block_bytes = 2 << 20;             // rounded up to whole pages
  uint64_t total_bytes = uint64_t{4} << 30;   // of all files, whole ones
  uint64_t file_bytes = uint64_t{256} << 20;  // of each
  uint64_t sync_bytes = uint64_t{64} << 20;   // written between two syncs
  uint32_t depth = 8;                         // requests in flight
};

// Writes go through the files in order and over and over, with a sync now and then; reads are
// of random blocks. The files are nameless: they are gone with the process.
class DiskLimit {
 public:
  // Preallocates and writes all files once, so that a run finds a disk that has been in use.
  explicit DiskLimit(const DiskOptions& options);
  ~DiskLimit();
  DiskLimit(const DiskLimit&) = delete;
  DiskLimit& operator=(const DiskLimit&) = delete;

  // GB/s; what was written is synced within the time.
  double Run(double seconds);
  const char* io() const { return io_->name(); }

 private:
  struct Place {
    int fd;
    uint64_t offset;
  };
  void MakeFiles();
  Place NextInOrder();
  Place AtRandom();
  // Until the time has come and at least `bytes` have been moved. Returns the bytes moved.
  uint64_t Move(bool write, uint64_t bytes, double deadline);

  DiskOptions options_;
  std::unique_ptr<RawIo> io_;
  char* memory_ = nullptr;
  std::vector<int> files_;
  uint64_t blocks_a_file_;
  uint64_t next_ = 0;
  Random random_{1};
};

}  // namespace limit

#endif  // LIMIT_DISK_LIMIT_H_
