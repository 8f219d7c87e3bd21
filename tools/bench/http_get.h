// One HTTP request, as much of it as a server's own pages take.
#ifndef QUARRY_TOOLS_BENCH_HTTP_GET_H_
#define QUARRY_TOOLS_BENCH_HTTP_GET_H_

#include <string>

#include "absl/status/statusor.h"

namespace quarry::bench {

// One GET over a connection of its own: the answer's body. Unavailable when it is not 200.
absl::StatusOr<std::string> HttpGet(const std::string& address, const std::string& path);

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_HTTP_GET_H_
