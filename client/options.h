// What ClientOptions may hold.
#ifndef QUARRY_CLIENT_OPTIONS_H_
#define QUARRY_CLIENT_OPTIONS_H_

#include <string>

#include "absl/status/status.h"
#include "quarry/client.h"

namespace quarry {

inline constexpr uint32_t kMaxDataStreams = 16;
inline constexpr uint32_t kMaxIoThreads = 16;
inline constexpr size_t kMaxClientNameBytes = 256;

// OK, or InvalidArgument that names the first bad field and its bound.
absl::Status Validate(const ClientOptions& options);

// client_name, or where that is empty the name of the running program.
std::string ChosenClientName(const ClientOptions& options);

}  // namespace quarry

#endif  // QUARRY_CLIENT_OPTIONS_H_
