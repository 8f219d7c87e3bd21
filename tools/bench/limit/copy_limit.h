// The copy limit: how fast threads copy random blocks of one arena into random places of
// another, or back, with nothing else to do.
#ifndef LIMIT_COPY_LIMIT_H_
#define LIMIT_COPY_LIMIT_H_

#include <cstddef>
#include <cstdint>

namespace limit {

struct CopyOptions {
  bool put = false;                 // from the places to the blocks
  bool process_vm = false;          // the places are another process's; else of a shared memfd
  size_t block_bytes = 2 << 20;     // contiguous, in the server's arena
  size_t segment_bytes = 64 << 10;  // pieces in the client's arena
  size_t threads = 2;
  size_t server_arena_bytes = size_t{2} << 30;
  size_t client_arena_bytes = size_t{1} << 30;
};

class CopyLimit {
 public:
  explicit CopyLimit(const CopyOptions& options);
  ~CopyLimit();
  // Copies for that long. GB/s (1e9 bytes).
  double Run(double seconds);

 private:
  void CopyBlock(char* block, const size_t* places) const;

  const CopyOptions options_;
  char* server_arena_ = nullptr;
  char* client_arena_ = nullptr;  // at the same address in the other process, where there is one
  int client_pid_ = 0;            // of that
  uint64_t rounds_ = 0;
};

}  // namespace limit

#endif  // LIMIT_COPY_LIMIT_H_
