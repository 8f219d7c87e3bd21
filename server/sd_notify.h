// systemd's readiness protocol.
#ifndef QUARRY_SERVER_SD_NOTIFY_H_
#define QUARRY_SERVER_SD_NOTIFY_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace quarry::server {

// Sends `state`, e.g. "READY=1", to $NOTIFY_SOCKET (a path, or @name for an abstract one).
// OK without doing anything when that is not set.
absl::Status SdNotify(absl::string_view state);

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SD_NOTIFY_H_
