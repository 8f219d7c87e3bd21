#include "server/session/session_server.h"

#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/random.h"
#include "common/transport/registry.h"
#include "common/view.h"

namespace quarry::server {
namespace {

constexpr size_t kMaxHandshakes = 1024;
constexpr int64_t kAcceptPauseNs = 100'000'000;

}  // namespace

// Accepts on one address, on a control loop.
class SessionServer::Listener : public FdHandler {
 public:
  Listener(SessionServer* server, EventLoop* loop, UniqueFd fd) : server_(server), loop_(loop), fd_(std::move(fd)) {
    loop_->Run([this] { loop_->Add(fd_.get(), EPOLLIN, this); });
  }
  ~Listener() override {
    loop_->Run([this] {
      if (paused_ != 0) {
        loop_->CancelTimer(paused_);
      } else {
        loop_->Remove(fd_.get(), this);
      }
    });
  }

 private:
  void OnEvents(uint32_t) override {
    while (true) {
      UniqueFd connection(accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (connection) {
        server_->accepting_.store(true, std::memory_order_relaxed);
        server_->OnAccepted(std::move(connection));
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        Pause();
        return;
      } else if (errno != EINTR && errno != ECONNABORTED) {
        return;
      }
    }
  }

  // Out of descriptors: the connection stays in the backlog, and asking at once again
  // would only burn the processor.
  void Pause() {
    spdlog::warn("cannot accept connections for the moment: out of file descriptors or memory");
    server_->accepting_.store(false, std::memory_order_relaxed);
    loop_->Remove(fd_.get(), this);
    paused_ = loop_->After(kAcceptPauseNs, [this] {
      paused_ = 0;
      loop_->Add(fd_.get(), EPOLLIN, this);
    });
  }

  SessionServer* const server_;
  EventLoop* const loop_;
  const UniqueFd fd_;
  EventLoop::TimerId paused_ = 0;
};

SessionServer::SessionServer(SessionServerOptions options, CacheService* service, ServiceMetrics* metrics)
    : options_(std::move(options)), service_(service), metrics_(metrics), scheduler_(options_.scheduler, metrics) {
  for (uint32_t i = 0; i < std::max(1u, options_.control_threads); ++i) {
    control_loops_.push_back(std::make_unique<EventLoop>(absl::StrCat("q-control-", i), options_.most_spin_ns));
    control_heartbeats_.push_back(std::make_unique<LoopHeartbeat>(control_loops_.back().get()));
  }
  for (uint32_t i = 0; i < std::max(1u, options_.data_threads); ++i) {
    data_loops_.push_back(std::make_unique<EventLoop>(absl::StrCat("q-data-", i)));
    data_heartbeats_.push_back(std::make_unique<LoopHeartbeat>(data_loops_.back().get()));
  }
}

absl::StatusOr<std::unique_ptr<SessionServer>> SessionServer::Create(SessionServerOptions options,
                                                                     CacheService* service, ServiceMetrics* metrics) {
  std::unique_ptr<SessionServer> server(new SessionServer(std::move(options), service, metrics));
  if (server->options_.ucx.has_value()) {
    auto ucx = transport::MakeUcxHost(*server->options_.ucx);
    if (!ucx.ok()) return ucx.status();
    server->ucx_ = *std::move(ucx);
  }
  if (absl::Status status = server->Listen(); !status.ok()) return status;
  return server;
}

absl::Status SessionServer::Listen() {
  std::vector<UniqueFd> fds;
  for (const std::string& address : options_.listen) {
    auto parsed = ParseHostPort(address);
    if (!parsed.ok()) return parsed.status();
    HostPort bound;
    auto fd = ListenTcp(*parsed, &bound);
    if (!fd.ok()) return fd.status();
    addresses_.push_back(bound);
    fds.push_back(*std::move(fd));
  }
  if (!options_.unix_socket_path.empty()) {
    auto fd = ListenUnix(options_.unix_socket_path);
    if (!fd.ok()) return fd.status();
    fds.push_back(*std::move(fd));
  }
  for (UniqueFd& fd : fds) {
    listeners_.push_back(std::make_unique<Listener>(this, control_loops_[0].get(), std::move(fd)));
  }
  return absl::OkStatus();
}

SessionServer::~SessionServer() {
  listeners_.clear();
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  for (const SessionPtr& session : sessions()) {
    session->loop()->Run([&] { OnSessionClosed(session, absl::CancelledError("the node is shutting down")); });
  }
  // What was posted runs before a loop ends: data loops first, because the ends of
  // transfers are handed over to control loops.
  for (const auto& loop : control_loops_) {
    loop->Run([&] {
      std::unordered_map<Handshake*, std::unique_ptr<Handshake>> mine;
      std::lock_guard lock(mutex_);
      for (auto it = handshakes_.begin(); it != handshakes_.end();) {
        const auto next = std::next(it);
        if (it->first->loop() == loop.get()) mine.insert(handshakes_.extract(it));
        it = next;
      }
    });
  }
  if (ucx_ != nullptr) ucx_->Shutdown();
  data_loops_.clear();
  control_loops_.clear();
  if (!options_.unix_socket_path.empty()) unlink(options_.unix_socket_path.c_str());
}

std::vector<SessionServer::SessionPtr> SessionServer::sessions() {
  std::lock_guard lock(mutex_);
  std::vector<SessionPtr> all;
  for (const auto& [id, session] : sessions_) all.push_back(session);
  return all;
}

void SessionServer::OnAccepted(UniqueFd fd) {
  SetNoDelay(fd.get());  // does nothing on a Unix socket
  EventLoop* loop = control_loops_[next_control_.fetch_add(1) % control_loops_.size()].get();
  const int raw = fd.release();
  loop->Post([this, loop, raw] {
    UniqueFd connection(raw);
    std::lock_guard lock(mutex_);
    if (closing_ || handshakes_.size() >= kMaxHandshakes) {
      metrics_->Refused(closing_ ? SessionRefusal::kDraining : SessionRefusal::kTooMany);
      return;
    }
    auto handshake = std::make_unique<Handshake>(
        std::move(connection), loop,
        [this, loop](Handshake* done, Handshake::Result result) { OnHandshake(loop, done, std::move(result)); });
    handshakes_.emplace(handshake.get(), std::move(handshake));
  });
}

void SessionServer::OnHandshake(EventLoop* loop, Handshake* handshake, Handshake::Result result) {
  if (!result.fd) {
    metrics_->Refused(SessionRefusal::kHandshake);
    spdlog::info("connection refused: {}", result.status.ToString());
  } else if (result.is_control) {
    OpenSession(loop, std::move(result));
  } else {
    JoinDataStream(std::move(result));
  }
  // Posted: the handshake is still on the stack.
  loop->Post([this, handshake] {
    std::unique_ptr<Handshake> ended;
    std::lock_guard lock(mutex_);
    if (auto node = handshakes_.extract(handshake); !node.empty()) ended = std::move(node.mapped());
  });
}

void SessionServer::OpenSession(EventLoop* loop, Handshake::Result result) {
  const auto refuse = [&](SessionRefusal why, const absl::Status& status) {
    metrics_->Refused(why);
    SendNow(result.fd.get(), ErrorMessage(result.request, status));
  };
  if (service_->draining()) return refuse(SessionRefusal::kDraining, absl::UnavailableError("the node is draining"));
  if (!result.credential.empty()) {
    return refuse(SessionRefusal::kCredential,
                  absl::UnauthenticatedError("credential: this node knows no credentials; it must be empty"));
  }
  // The channel is made first; it finds its session when a stream breaks.
  auto owner = std::make_shared<std::weak_ptr<Session>>();
  auto on_broken = [this, owner](const absl::Status& status) {
    SessionPtr session = owner->lock();
    if (session == nullptr) return;
    session->loop()->Post([this, session, status] { OnSessionClosed(session, status); });
  };
  // Either moves what its client does not want so over TCP.
  auto channel = transport::MakeServerChannel(
      ucx_ != nullptr ? "ucx" : "shm",
      {.on_closed = std::move(on_broken), .max_streams = service_->limits().max_data_streams, .ucx = ucx_});
  if (!channel.ok()) return refuse(SessionRefusal::kHandshake, channel.status());

  Session::Parts parts;
  parts.loop = loop;
  parts.service = service_;
  parts.scheduler = &scheduler_;
  parts.channel = *std::move(channel);
  parts.id = SecureRandomBytes(wire::kSessionIdBytes);
  parts.client = result.client;
  parts.tenant = std::string(kDefaultTenant);
  parts.node = options_.node_name;
  parts.view_digest = ViewDigest({options_.node_name});
  const bool within_host = IsWithinHost(result.fd.get());
  if (within_host) parts.socket = options_.unix_socket_path;
  parts.ucx = OfferTo(within_host);
  parts.on_closed = [this](const SessionPtr& session, const absl::Status& status) { OnSessionClosed(session, status); };
  SessionPtr session;
  {
    std::lock_guard lock(mutex_);
    if (closing_ || sessions_.size() >= options_.max_sessions) {
      return refuse(SessionRefusal::kTooMany,
                    absl::ResourceExhaustedError(absl::StrCat("sessions: at most ", options_.max_sessions)));
    }
    session = std::make_shared<Session>(std::move(parts));
    *owner = session;
    sessions_.emplace(session->id(), session);
  }
  metrics_->sessions.fetch_add(1, std::memory_order_relaxed);
  metrics_->sessions_total.fetch_add(1, std::memory_order_relaxed);
  session->Open(std::move(result.fd), std::move(result.buffer), result.request, result.minor);
}

wire::UcxOffer SessionServer::OfferTo(bool within_host) const {
  if (ucx_ == nullptr) return wire::UcxOffer::kNone;
  if (options_.ucx->trusted_fabric) return wire::UcxOffer::kFabric;
  return within_host ? wire::UcxOffer::kWithinHost : wire::UcxOffer::kNone;
}

void SessionServer::JoinDataStream(Handshake::Result result) {
  SessionPtr session;
  {
    std::lock_guard lock(mutex_);
    auto it = sessions_.find(result.session);
    if (it != sessions_.end()) session = it->second;
  }
  const auto refuse = [&](SessionRefusal why, const absl::Status& status) {
    metrics_->Refused(why);
    SendNow(result.fd.get(), ErrorMessage(result.request, status));
  };
  if (session == nullptr || !result.buffer.empty()) {
    return refuse(SessionRefusal::kUnknownSession,
                  absl::NotFoundError("session: no such session, or more was sent than data_hello"));
  }
  if (!session->AdmitDataStream()) {
    return refuse(SessionRefusal::kTooMany, absl::ResourceExhaustedError(absl::StrCat(
                                                "data streams: at most ", service_->limits().max_data_streams,
                                                " a session (limits.max_data_streams)")));
  }
  if (result.shared_memory != 0 && !IsUnixSocket(result.fd.get())) {
    return refuse(SessionRefusal::kHandshake,
                  absl::FailedPreconditionError("shared_memory: only over the node's Unix socket"));
  }
  if (result.ucx && OfferTo(IsWithinHost(result.fd.get())) == wire::UcxOffer::kNone) {
    return refuse(SessionRefusal::kHandshake, absl::FailedPreconditionError("ucx: not offered to clients here"));
  }
  SendNow(result.fd.get(), {result.request, wire::HelloReply{wire::kMajorVersion, result.minor, result.session,
                                                             service_->limits(), options_.node_name, ""}});
  // Of each kind in turn: a session opens one of both, and most moves over the shared ones.
  std::atomic<uint32_t>& next = result.shared_memory != 0 ? next_shared_ : next_data_;
  EventLoop* loop = data_loops_[next.fetch_add(1) % data_loops_.size()].get();
  transport::ServerChannel& channel = *session->channel();
  const int fd = result.fd.release();
  const bool added = result.ucx                  ? channel.AddUcxStream(fd, loop)
                     : result.shared_memory != 0 ? channel.AddSharedStream(fd, loop, result.shared_memory == 1)
                                                 : channel.AddStream(fd, loop);
  if (!added) {
    metrics_->Refused(SessionRefusal::kUnknownSession);
    spdlog::info("session of {}: data stream refused: the session is closing", session->client());
  }
}

void SessionServer::OnSessionClosed(const SessionPtr& session, const absl::Status& status) {
  {
    std::lock_guard lock(mutex_);
    if (sessions_.erase(session->id()) == 0) return;
  }
  metrics_->sessions.fetch_sub(1, std::memory_order_relaxed);
  spdlog::debug("session of {} ended: {}", session->client(), status.ToString());
  session->Close();
  // Posted, because this may be called from inside the session.
  session->loop()->Post([session] {});
}

SessionHealth SessionServer::CheckHealth() {
  const int64_t now_ns = Clock::Real()->NowNs();
  SessionHealth health;
  health.accepting = accepting_.load(std::memory_order_relaxed);
  for (const auto& beat : control_heartbeats_) {
    health.control_late_ns = std::max(health.control_late_ns, beat->Beat(now_ns));
  }
  for (const auto& beat : data_heartbeats_) health.data_late_ns = std::max(health.data_late_ns, beat->Beat(now_ns));
  return health;
}

void SessionServer::Drain() {
  service_->Drain();
  for (const SessionPtr& session : sessions()) session->loop()->Post([session] { session->SendDraining(); });
}

bool SessionServer::Idle() {
  for (const SessionPtr& session : sessions()) {
    size_t requests = 0;
    session->loop()->Run([&] { requests = session->requests(); });
    if (requests != 0) return false;
  }
  return true;
}

}  // namespace quarry::server
