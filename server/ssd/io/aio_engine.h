// The kernel's older asynchronous IO, through libaio: as fast with O_DIRECT, and allowed where
// io_uring is not. Without O_DIRECT its reads and writes block in Submit.
#ifndef QUARRY_SERVER_SSD_IO_AIO_ENGINE_H_
#define QUARRY_SERVER_SSD_IO_AIO_ENGINE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "server/ssd/io/io_engine.h"

namespace quarry::server {

// Unavailable says why it does not work here.
absl::StatusOr<std::unique_ptr<IoEngine>> CreateAioEngine(uint32_t depth);

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SSD_IO_AIO_ENGINE_H_
