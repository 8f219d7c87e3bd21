#include "tools/quarryctl/archive/new_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"

namespace quarry::ctl {

absl::StatusOr<NewFile> NewFile::Create(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a file"));
  }
  std::string temporary = path + ".XXXXXX";
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return absl::InvalidArgumentError(absl::StrCat(path, ": ", std::strerror(errno)));
  return NewFile(path, std::move(temporary), fd);
}

NewFile::NewFile(NewFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      fd_(std::exchange(other.fd_, -1)) {}

NewFile::~NewFile() {
  if (fd_ >= 0) close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

absl::Status NewFile::Failed() const {
  return absl::UnknownError(absl::StrCat(path_, ": ", std::strerror(errno), "; nothing is left of it"));
}

absl::Status NewFile::Append(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed();
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status NewFile::Commit() {
  if (fsync(fd_) != 0) return Failed();
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return Failed();
  temporary_.clear();
  // The name is on disk when its folder is.
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  const int folder_fd = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_fd < 0 || fsync(folder_fd) != 0) {
    const std::string why = std::strerror(errno);
    if (folder_fd >= 0) close(folder_fd);
    return absl::UnknownError(absl::StrCat(path_, ": written, but its folder cannot be synced: ", why));
  }
  close(folder_fd);
  return absl::OkStatus();
}

}  // namespace quarry::ctl
