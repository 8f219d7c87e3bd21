// io_uring, through liburing: the fastest, where it is allowed.
#ifndef QUARRY_SERVER_SSD_IO_URING_ENGINE_H_
#define QUARRY_SERVER_SSD_IO_URING_ENGINE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "server/ssd/io/io_engine.h"

namespace quarry::server {

// Unavailable says why it does not work here.
absl::StatusOr<std::unique_ptr<IoEngine>> CreateUringEngine(uint32_t depth);

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SSD_IO_URING_ENGINE_H_
