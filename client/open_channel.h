// How a session's payload moves: which transport is picked for a node, and why.
#ifndef QUARRY_CLIENT_OPEN_CHANNEL_H_
#define QUARRY_CLIENT_OPEN_CHANNEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/dial_interrupt.h"
#include "client/handshake.h"
#include "common/net/event_loop.h"
#include "common/transport/transport.h"
#include "quarry/client.h"

namespace quarry {

struct TransportChoice {
  std::string name;
  std::string why;  // completes "because ..."
};

struct OpenedChannel {
  std::unique_ptr<transport::ClientChannel> channel;
  TransportChoice choice;
};

// What "auto" goes by.
struct TransportFacts {
  bool node_on_host = false;      // and has a Unix socket
  bool node_offers_ucx = false;   // to this client
  bool ucx_over_network = false;  // this client may use it so
  bool has_rdma_device = false;   // this host
};
// The transports to try, the first that works wins; "tcp" is the last. Over a network UCX is picked
// where it has RDMA: over TCP it is no faster than "tcp" is.
std::vector<std::string> AutoOrder(const TransportFacts& facts);

// Opens the streams that the wanted transport needs, and makes the channel. Blocks until the
// deadline (Clock::Real). FailedPrecondition: the transport that was named does not work.
absl::StatusOr<OpenedChannel> OpenChannel(const ClientOptions& options, const Greeting& greeting,
                                          const std::vector<EventLoop*>& loops,
                                          const std::function<void(absl::Status)>& on_closed, int64_t deadline_ns,
                                          DialInterrupt* interrupt);

}  // namespace quarry

#endif  // QUARRY_CLIENT_OPEN_CHANNEL_H_
