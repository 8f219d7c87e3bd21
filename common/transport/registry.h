// The transports there are. A new one is a folder beside this file and a line in
// registry.cc.
#ifndef QUARRY_COMMON_TRANSPORT_REGISTRY_H_
#define QUARRY_COMMON_TRANSPORT_REGISTRY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/transport/transport.h"

namespace quarry::transport {

// What UCX is to be used, and where.
struct UcxOptions {
  std::string libucp;  // path of libucp, or a name that the loader looks up; empty: libucp.so.0
  // Whatever network UCX finds, not only the loopback device and shared memory. What travels over
  // it is neither encrypted nor authenticated.
  bool trusted_fabric = false;
  // Whether the adapters may read and write registered memory of a client by themselves (RMA). Both
  // ends must say so. kAuto: over the lanes of RDMA adapters. kAlways is for tests: elsewhere it is
  // done in software, which is slower than messages and guarded by nothing.
  enum class Rma : uint8_t { kNever, kAuto, kAlways } rma = Rma::kAuto;
  // A server's memory of blocks, if it has any: mapped once for the adapters, where they may reach
  // it by RMA, and not by and by.
  MemoryRange slots;
};

// Of "never", "auto" and "always"; other names are as "auto".
UcxOptions::Rma RmaNamed(absl::string_view name);

// What all sessions of a server share of UCX.
class UcxHost {
 public:
  virtual ~UcxHost() = default;
  // After the channels have been closed, before their loops end.
  virtual void Shutdown() = 0;
  virtual std::string version() const = 0;
};
// FailedPrecondition: built without UCX. NotFound: it is not installed.
absl::StatusOr<std::shared_ptr<UcxHost>> MakeUcxHost(const UcxOptions& options);

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
  // "ucx": the stream that joined for it, on which the ends greet each other by the same time.
  JoinedStream ucx_stream;
  UcxOptions ucx;
  // Called once, on a loop's thread, when the channel breaks (not when it is destroyed):
  // no further item arrives or is sent. Withdraw is still needed, and works.
  std::function<void(absl::Status)> on_closed;
};

struct ServerChannelContext {
  // Called once, on a loop's thread, when the channel breaks (not when it is closed).
  std::function<void(absl::Status)> on_closed;
  uint32_t max_streams = 16;
  std::shared_ptr<UcxHost> ucx;  // "ucx" needs it
  // "ucx": a client that takes nothing of what is on its way to it for so long loses its session,
  // because that cannot be called back, and keeps its slots.
  int64_t ucx_stuck_ns = 30'000'000'000;
};

// InvalidArgument when there is no transport of that name. Others: it does not work with this
// peer, and of the context only `shared_streams` and `ucx_stream` were taken.
absl::StatusOr<std::unique_ptr<ClientChannel>> MakeClientChannel(const std::string& transport,
                                                                 ClientChannelContext context);
absl::StatusOr<std::unique_ptr<ServerChannel>> MakeServerChannel(const std::string& transport,
                                                                 ServerChannelContext context);

}  // namespace quarry::transport

#endif  // QUARRY_COMMON_TRANSPORT_REGISTRY_H_
