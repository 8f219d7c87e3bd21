#include "server/ssd/extent_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace quarry::server {
namespace {

constexpr absl::string_view kSuffix = ".extent";

class PosixExtentFiles final : public ExtentFiles {
 public:
  static absl::StatusOr<std::unique_ptr<ExtentFiles>> Open(const std::string& dir) {
    std::error_code error;
    std::filesystem::create_directories(dir, error);
    if (error) return absl::ErrnoToStatus(error.value(), dir);
    UniqueFd fd(open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd) return absl::ErrnoToStatus(errno, dir);
    std::unique_ptr<PosixExtentFiles> files(new PosixExtentFiles(dir, std::move(fd)));
    if (absl::Status status = files->FindOutDirect(); !status.ok()) return status;
    return files;
  }

  absl::StatusOr<std::vector<Found>> List() override {
    std::vector<Found> found;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(dir_, error)) {
      const std::string name = entry.path().filename();
      uint32_t number;
      if (!absl::EndsWith(name, kSuffix) || !absl::SimpleAtoi(absl::StripSuffix(name, kSuffix), &number)) continue;
      const uint64_t bytes = entry.file_size(error);
      if (error) return absl::ErrnoToStatus(error.value(), entry.path().string());
      found.push_back({number, bytes});
    }
    if (error) return absl::ErrnoToStatus(error.value(), dir_);
    std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.number < b.number; });
    return found;
  }

  absl::StatusOr<UniqueFd> Open(uint32_t number) override { return OpenFile(PathOf(number), 0); }

  absl::StatusOr<UniqueFd> Create(uint32_t number, uint64_t bytes) override {
    const std::string path = PathOf(number);
    absl::StatusOr<UniqueFd> fd = OpenFile(path, O_CREAT | O_TRUNC);
    if (!fd.ok()) return fd;
    const int failed = posix_fallocate(fd->get(), 0, static_cast<off_t>(bytes));
    if (failed == 0 && fsync(fd->get()) == 0 && fsync(dir_fd_.get()) == 0) return fd;
    const absl::Status status = absl::ErrnoToStatus(failed != 0 ? failed : errno, path);
    unlink(path.c_str());
    return status;
  }

  absl::Status Remove(uint32_t number) override {
    const std::string path = PathOf(number);
    if (unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
    return absl::ErrnoToStatus(errno, path);
  }

  bool direct() const override { return direct_; }

 private:
  PosixExtentFiles(std::string dir, UniqueFd dir_fd) : dir_(std::move(dir)), dir_fd_(std::move(dir_fd)) {}

  std::string PathOf(uint32_t number) const { return ExtentPath(dir_, number); }

  absl::StatusOr<UniqueFd> OpenFile(const std::string& path, int flags) const {
    UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC | flags | (direct_ ? O_DIRECT : 0), 0600));
    if (!fd) return absl::ErrnoToStatus(errno, path);
    return fd;
  }

  // Also shows that files can be made here.
  absl::Status FindOutDirect() {
    const std::string path = absl::StrCat(dir_, "/probe");
    absl::StatusOr<UniqueFd> fd = OpenFile(path, O_CREAT);
    if (!fd.ok() && fd.status().code() == absl::ErrnoToStatusCode(EINVAL)) {
      direct_ = false;
      fd = OpenFile(path, O_CREAT);
    }
    unlink(path.c_str());
    return fd.status();
  }

  const std::string dir_;
  const UniqueFd dir_fd_;
  bool direct_ = true;
};

}  // namespace

std::string ExtentPath(const std::string& dir, uint32_t number) {
  return absl::StrFormat("%s/%08u%s", dir, number, kSuffix);
}

absl::StatusOr<std::unique_ptr<ExtentFiles>> OpenExtentFiles(const std::string& dir) {
  return PosixExtentFiles::Open(dir);
}

}  // namespace quarry::server
