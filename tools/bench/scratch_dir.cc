#include "tools/bench/scratch_dir.h"

#include <errno.h>
#include <stdlib.h>

#include <filesystem>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace quarry::bench {

absl::StatusOr<std::unique_ptr<ScratchDir>> ScratchDir::Create(const std::string& parent) {
  std::string path = parent + "/quarry-bench-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot make a directory in ", parent));
  }
  return std::unique_ptr<ScratchDir>(new ScratchDir(std::move(path)));
}

ScratchDir::~ScratchDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace quarry::bench
