// A directory that lasts as long as its owner.
#ifndef QUARRY_TOOLS_BENCH_SCRATCH_DIR_H_
#define QUARRY_TOOLS_BENCH_SCRATCH_DIR_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace quarry::bench {

class ScratchDir {
 public:
  // A new one in `parent`, which must be there.
  static absl::StatusOr<std::unique_ptr<ScratchDir>> Create(const std::string& parent);
  // Removes it with all that is in it.
  ~ScratchDir();
  ScratchDir(const ScratchDir&) = delete;
  ScratchDir& operator=(const ScratchDir&) = delete;

  const std::string& path() const { return path_; }

 private:
  explicit ScratchDir(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_SCRATCH_DIR_H_
