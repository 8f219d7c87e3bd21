// The transports there are. A new one is a folder beside this file and a line in
// registry.cc.
#ifndef QUARRY_COMMON_TRANSPORT_REGISTRY_H_
#define QUARRY_COMMON_TRANSPORT_REGISTRY_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/transport/transport.h"

namespace quarry::transport {

// A data stream that has joined its session; the channel takes the fd.
struct JoinedStream {
  int fd = -1;
  EventLoop* loop = nullptr;
};

struct ClientChannelContext {
  std::vector<JoinedStream> streams;
  // Those that joined for shared memory; and until when (Clock::Real) the first of them may
  // take to be greeted.
  std::vector<JoinedStream> shared_streams;
  int64_t deadline_ns = 0;
  // Called once, on a loop's thread, when the channel breaks (not when it is destroyed):
  // no further item arrives or is sent. Withdraw is still needed, and works.
  std::function<void(absl::Status)> on_closed;
};

struct ServerChannelContext {
  // Called once, on a loop's thread, when the channel breaks (not when it is closed).
  std::function<void(absl::Status)> on_closed;
  uint32_t max_streams = 16;
};

// InvalidArgument when there is no transport of that name. Others: it does not work with this
// peer, and of the context only `shared_streams` were taken.
absl::StatusOr<std::unique_ptr<ClientChannel>> MakeClientChannel(const std::string& transport,
                                                                 ClientChannelContext context);
absl::StatusOr<std::unique_ptr<ServerChannel>> MakeServerChannel(const std::string& transport,
                                                                 ServerChannelContext context);

}  // namespace quarry::transport

#endif  // QUARRY_COMMON_TRANSPORT_REGISTRY_H_
