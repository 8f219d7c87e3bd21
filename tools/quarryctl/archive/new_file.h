// A file that is there whole or not at all.
#ifndef QUARRY_TOOLS_QUARRYCTL_ARCHIVE_NEW_FILE_H_
#define QUARRY_TOOLS_QUARRYCTL_ARCHIVE_NEW_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace quarry::ctl {

// Written under a temporary name in the folder of `path`. Commit gives it its own, in place
// of what had it; otherwise it is removed. Only its owner may read it: KV tells of prompts.
// Errors are InvalidArgument where the path is at fault, else Unknown, and name it.
class NewFile {
 public:
  static absl::StatusOr<NewFile> Create(const std::string& path);
  ~NewFile();
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;

  absl::Status Append(absl::string_view bytes);
  // On disk, and under its name, when this returns.
  absl::Status Commit();

 private:
  NewFile(std::string path, std::string temporary, int fd)
      : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {}

  absl::Status Failed() const;

  std::string path_;
  std::string temporary_;  // empty: it has its own name, or was moved from
  int fd_;
};

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_ARCHIVE_NEW_FILE_H_
