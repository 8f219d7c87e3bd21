// How much memory this process may use.
#ifndef QUARRY_SERVER_MEMORY_LIMIT_H_
#define QUARRY_SERVER_MEMORY_LIMIT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace quarry::server {

// The least of the limits of the process's control groups (v2 memory.max, v1
// memory.limit_in_bytes, of its own group and all above) and the machine's memory.
// `root` is where /proc and /sys/fs/cgroup are looked for; tests pass another one.
absl::StatusOr<uint64_t> MemoryLimitBytes(const std::string& root = "");

}  // namespace quarry::server

#endif  // QUARRY_SERVER_MEMORY_LIMIT_H_
