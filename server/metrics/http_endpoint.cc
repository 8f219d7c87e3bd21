#include "server/metrics/http_endpoint.h"

#include <microhttpd.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"

namespace quarry::server {
namespace {

constexpr unsigned kMaxConnections = 64;
constexpr unsigned kTimeoutSeconds = 10;
constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";
constexpr char kTextType[] = "text/plain; charset=utf-8";

struct Answer {
  unsigned status;
  const char* type;
  std::string body;
};

Answer AnswerTo(const HttpEndpointOptions& options, absl::string_view method, absl::string_view path) {
  if (method != "GET" && method != "HEAD") return {MHD_HTTP_METHOD_NOT_ALLOWED, kTextType, "only GET and HEAD\n"};
  if (path == "/metrics") return {MHD_HTTP_OK, kMetricsType, options.metrics()};
  if (path == "/livez") return {MHD_HTTP_OK, kTextType, "ok\n"};
  if (path == "/readyz") {
    const std::string why = options.not_ready();
    if (why.empty()) return {MHD_HTTP_OK, kTextType, "ok\n"};
    return {MHD_HTTP_SERVICE_UNAVAILABLE, kTextType, absl::StrCat(why, "\n")};
  }
  return {MHD_HTTP_NOT_FOUND, kTextType, "there are /metrics, /livez and /readyz\n"};
}

// The library drops the body for HEAD.
MHD_Result Send(MHD_Connection* connection, Answer answer) {
  MHD_Response* response =
      MHD_create_response_from_buffer(answer.body.size(), answer.body.data(), MHD_RESPMEM_MUST_COPY);
  if (response == nullptr) return MHD_NO;
  MHD_Result result = MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, answer.type);
  if (result == MHD_YES && answer.status == MHD_HTTP_METHOD_NOT_ALLOWED) {
    result = MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
  }
  if (result == MHD_YES) result = MHD_queue_response(connection, answer.status, response);
  MHD_destroy_response(response);
  return result;
}

// Called once with the headers, then with each part of a body, then with none.
MHD_Result OnRequest(void* options, MHD_Connection* connection, const char* path, const char* method,
                     const char* /*version*/, const char* /*body*/, size_t* body_bytes, void** state) {
  static char headers_seen;
  if (*state == nullptr) {
    *state = &headers_seen;
    return MHD_YES;
  }
  if (*body_bytes != 0) {
    *body_bytes = 0;  // not wanted
    return MHD_YES;
  }
  return Send(connection, AnswerTo(*static_cast<const HttpEndpointOptions*>(options), method, path));
}

void Log(void* /*context*/, const char* format, va_list arguments) {
  char message[256];
  std::vsnprintf(message, sizeof(message), format, arguments);
  spdlog::debug("HTTP: {}", message);
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpEndpoint>> HttpEndpoint::Create(HttpEndpointOptions options) {
  std::unique_ptr<HttpEndpoint> endpoint(new HttpEndpoint(std::move(options)));
  for (const HostPort& address : endpoint->options_.listen) {
    if (absl::Status status = endpoint->Listen(address); !status.ok()) return status;
  }
  return endpoint;
}

HttpEndpoint::HttpEndpoint(HttpEndpointOptions options) : options_(std::move(options)) {}

HttpEndpoint::~HttpEndpoint() {
  for (MHD_Daemon* daemon : daemons_) MHD_stop_daemon(daemon);
}

absl::Status HttpEndpoint::Listen(const HostPort& address) {
  HostPort bound;
  absl::StatusOr<UniqueFd> fd = ListenTcp(address, &bound);
  if (!fd.ok()) return fd.status();
  // The library takes the socket.
  MHD_Daemon* daemon =
      MHD_start_daemon(MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_ERROR_LOG, 0, nullptr, nullptr,
                       OnRequest, const_cast<HttpEndpointOptions*>(&options_), MHD_OPTION_EXTERNAL_LOGGER, Log, nullptr,
                       MHD_OPTION_LISTEN_SOCKET, fd->release(), MHD_OPTION_CONNECTION_LIMIT, kMaxConnections,
                       MHD_OPTION_CONNECTION_TIMEOUT, kTimeoutSeconds, MHD_OPTION_END);
  if (daemon == nullptr) return absl::UnavailableError(absl::StrCat("cannot serve HTTP on ", FormatHostPort(address)));
  daemons_.push_back(daemon);
  addresses_.push_back(bound);
  return absl::OkStatus();
}

HttpEndpoint::Connections HttpEndpoint::connections() const {
  Connections connections{0, kMaxConnections};
  for (MHD_Daemon* daemon : daemons_) {
    const MHD_DaemonInfo* info = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);
    if (info != nullptr) connections.now = std::max(connections.now, info->num_connections);
  }
  return connections;
}

}  // namespace quarry::server
