#include "tests/unit/transport/link.h"

#include <sys/epoll.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "common/clock.h"
#include "common/net/event_loop.h"
#include "common/transport/loopback/loopback.h"
#include "common/transport/tcp/client_channel.h"
#include "common/transport/tcp/server_channel.h"
#include "tests/unit/transport/sockets.h"

namespace quarry::transport {
namespace {

constexpr int64_t kLongNs = 200'000'000'000;

class Loopback : public Link {
 public:
  ServerChannel& server() override { return link_.server(); }
  ClientChannel& client() override { return link_.client(); }
  void Settle() override { link_.RunUntilIdle(); }
  void Nudge() override { link_.Step(); }
  void DestroyClient() override { link_.server().Close(); }  // its ends are one object
  int broken() const override { return 0; }

 private:
  loopback::LoopbackLink link_;
};

class Tcp : public Link {
 public:
  Tcp(int streams, int loops) {
    for (int i = 0; i < loops; ++i) {
      server_loops_.push_back(std::make_unique<EventLoop>("t-server"));
      client_loops_.push_back(std::make_unique<EventLoop>("t-client"));
    }
    server_ = std::make_unique<tcp::TcpServerChannel>(
        ServerChannelContext{.on_closed = [this](const absl::Status&) { ++broken_; }});
    ClientChannelContext context{.on_closed = [this](const absl::Status&) { ++broken_; }};
    for (int i = 0; i < streams; ++i) {
      SocketPair pair = TcpPair();
      context.streams.push_back({pair.first.release(), client_loops_[i % loops].get()});
      if (!server_->AddStream(pair.second.release(), server_loops_[i % loops].get())) std::abort();
    }
    client_ = std::make_unique<tcp::TcpClientChannel>(std::move(context));
  }
  ~Tcp() override {
    server_.reset();
    client_.reset();
    // The streams end on their loops, and may call on_closed until then.
    server_loops_.clear();
    client_loops_.clear();
  }

  ServerChannel& server() override { return *server_; }
  ClientChannel& client() override { return *client_; }
  void Settle() override {
    Nudge();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  void Nudge() override {
    for (auto& loop : server_loops_) loop->Run([] {});
    for (auto& loop : client_loops_) loop->Run([] {});
  }
  void DestroyClient() override { client_.reset(); }
  int broken() const override { return broken_; }

 private:
  std::atomic<int> broken_{0};
  std::vector<std::unique_ptr<EventLoop>> server_loops_;
  std::vector<std::unique_ptr<EventLoop>> client_loops_;
  std::unique_ptr<ServerChannel> server_;
  std::unique_ptr<ClientChannel> client_;
};

}  // namespace

std::vector<LinkKind> AllLinks() {
  return {
      {"loopback", []() -> std::unique_ptr<Link> { return std::make_unique<Loopback>(); }},
      {"tcp_1_stream", []() -> std::unique_ptr<Link> { return std::make_unique<Tcp>(1, 1); }},
      {"tcp_3_streams_2_loops", []() -> std::unique_ptr<Link> { return std::make_unique<Tcp>(3, 2); }},
  };
}

bool WaitUntil(Link& link, const std::function<bool()>& condition) {
  const int64_t deadline = Clock::Real()->NowNs() + kLongNs;
  while (!condition()) {
    if (Clock::Real()->NowNs() > deadline) return false;
    link.Settle();
  }
  return true;
}

}  // namespace quarry::transport
