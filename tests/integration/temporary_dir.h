// A directory of a test's own, on a real disk.
#ifndef QUARRY_TESTS_INTEGRATION_TEMPORARY_DIR_H_
#define QUARRY_TESTS_INTEGRATION_TEMPORARY_DIR_H_

#include <cstdlib>
#include <filesystem>
#include <string>

namespace quarry::testing {

// Under $TMPDIR, else /var/tmp, which is on a disk where /tmp may be memory. Removed in the end.
class TemporaryDir {
 public:
  TemporaryDir() {
    const char* parent = std::getenv("TMPDIR");
    path_ = std::string(parent != nullptr ? parent : "/var/tmp") + "/quarry-test-XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~TemporaryDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDir(const TemporaryDir&) = delete;
  TemporaryDir& operator=(const TemporaryDir&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace quarry::testing

#endif  // QUARRY_TESTS_INTEGRATION_TEMPORARY_DIR_H_
