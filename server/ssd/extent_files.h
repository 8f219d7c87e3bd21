// The files of one disk's extents. A seam: tests put disks behind it that fail.
#ifndef QUARRY_SERVER_SSD_EXTENT_FILES_H_
#define QUARRY_SERVER_SSD_EXTENT_FILES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net/socket.h"

namespace quarry::server {

// One caller at a time.
class ExtentFiles {
 public:
  struct Found {
    uint32_t number = 0;
    uint64_t bytes = 0;
  };

  virtual ~ExtentFiles() = default;
  // In order of their numbers. Files that are none of ours are passed over.
  virtual absl::StatusOr<std::vector<Found>> List() = 0;
  // For reading and writing, by direct IO if direct().
  virtual absl::StatusOr<UniqueFd> Open(uint32_t number) = 0;
  // Creates it with all its space, and makes that last. ResourceExhausted: the disk is full;
  // then there is no file.
  virtual absl::StatusOr<UniqueFd> Create(uint32_t number, uint64_t bytes) = 0;
  virtual absl::Status Remove(uint32_t number) = 0;
  // Whether the file system takes O_DIRECT.
  virtual bool direct() const = 0;
};

// The path of an extent in such a directory.
std::string ExtentPath(const std::string& dir, uint32_t number);

// In `dir`, which is created. PermissionDenied and others name it.
absl::StatusOr<std::unique_ptr<ExtentFiles>> OpenExtentFiles(const std::string& dir);

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SSD_EXTENT_FILES_H_
