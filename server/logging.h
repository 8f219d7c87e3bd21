// The daemon's log: spdlog to stderr, as text or as one JSON object a line.
#ifndef QUARRY_SERVER_LOGGING_H_
#define QUARRY_SERVER_LOGGING_H_

#include <string>

#include "absl/strings/string_view.h"

namespace quarry::server {

// `format` and `level` as in ServerConfig. Call before threads start.
void ConfigureLogging(const std::string& format, const std::string& level);
// Any time.
void SetLogLevel(const std::string& level);
// As SetLogLevel takes it.
std::string LogLevel();

// With what JSON strings require escaped, quotes excluded; bytes that are not UTF-8 pass.
std::string JsonEscape(absl::string_view text);

}  // namespace quarry::server

#endif  // QUARRY_SERVER_LOGGING_H_
