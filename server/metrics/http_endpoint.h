// The HTTP port: /metrics for Prometheus, /livez and /readyz for orchestrators.
//
// Not prometheus-cpp's Exposer, which serves nothing but metrics and, as Debian builds its
// web server, no IPv6.
#ifndef QUARRY_SERVER_METRICS_HTTP_ENDPOINT_H_
#define QUARRY_SERVER_METRICS_HTTP_ENDPOINT_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/net/socket.h"

struct MHD_Daemon;

namespace quarry::server {

// Called on the endpoint's own threads.
struct HttpEndpointOptions {
  std::vector<HostPort> listen;            // port 0 picks one
  std::function<std::string()> metrics;    // Prometheus text
  std::function<std::string()> not_ready;  // /readyz: 200, or 503 and why; empty: ready
};

class HttpEndpoint {
 public:
  // Serving when it returns. Unavailable, with the reason, when an address cannot be had.
  static absl::StatusOr<std::unique_ptr<HttpEndpoint>> Create(HttpEndpointOptions options);
  ~HttpEndpoint();
  HttpEndpoint(const HttpEndpoint&) = delete;
  HttpEndpoint& operator=(const HttpEndpoint&) = delete;

  // Open now, and at most, of the address that has least room.
  struct Connections {
    unsigned now = 0;
    unsigned most = 0;
  };
  Connections connections() const;
  // As bound, in the order of `listen`.
  const std::vector<HostPort>& addresses() const { return addresses_; }

 private:
  explicit HttpEndpoint(HttpEndpointOptions options);
  absl::Status Listen(const HostPort& address);

  const HttpEndpointOptions options_;
  std::vector<HostPort> addresses_;
  std::vector<MHD_Daemon*> daemons_;  // one an address, each with a thread
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_METRICS_HTTP_ENDPOINT_H_
