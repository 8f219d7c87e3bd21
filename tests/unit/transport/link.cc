#include "tests/unit/transport/link.h"

#include <sys/epoll.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "common/clock.h"
#include "common/net/event_loop.h"
#include "common/transport/loopback/loopback.h"
#include "common/transport/registry.h"
#include "common/transport/shm/client_channel.h"
#include "common/transport/shm/server_channel.h"
#include "common/transport/tcp/client_channel.h"
#include "common/transport/tcp/server_channel.h"
#if QUARRY_WITH_UCX
#include "common/transport/ucx/client_channel.h"
#include "common/transport/ucx/server_channel.h"
#endif
#include "tests/unit/transport/memory.h"
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

// Both ends on loops of their own.
class OnLoops : public Link {
 public:
  ~OnLoops() override { End(); }

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

 protected:
  void End() {
    server_.reset();
    client_.reset();
    // The streams end on their loops, and may call on_closed until then.
    server_loops_.clear();
    client_loops_.clear();
  }

  std::atomic<int> broken_{0};
  std::vector<std::unique_ptr<EventLoop>> server_loops_;
  std::vector<std::unique_ptr<EventLoop>> client_loops_;
  std::unique_ptr<ServerChannel> server_;
  std::unique_ptr<ClientChannel> client_;
};

class Tcp : public OnLoops {
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
};

// Registers the memory of what is exposed, for as long as it is.
class RegisteringChannel : public ClientChannel {
 public:
  explicit RegisteringChannel(std::unique_ptr<ClientChannel> channel) : channel_(std::move(channel)) {}

  void Expose(uint64_t request, std::shared_ptr<ExposedRequest> exposed) override {
    Unregister(request);  // of before
    std::vector<MemoryRange> ranges;
    for (uint32_t i = 0; const ExposedRequest::Item* item = exposed->item(i); ++i) {
      ranges.push_back(RangeOf(item->segments));
      if (absl::Status status = channel_->RegisterMemory(ranges.back()); !status.ok()) {
        std::fprintf(stderr, "%s\n", status.ToString().c_str());
        std::abort();
      }
    }
    {
      std::lock_guard lock(mutex_);
      ranges_[request] = std::move(ranges);
    }
    channel_->Expose(request, std::move(exposed));
  }
  Release Withdraw(uint64_t request, std::function<void()> released) override {
    const Release result = channel_->Withdraw(request, [this, request, released = std::move(released)] {
      Unregister(request);
      released();
    });
    if (result == Release::kReleased) Unregister(request);
    return result;
  }
  // Earlier than it would be.
  void UnregisterMemory(MemoryRange range) override { channel_->UnregisterMemory(range); }
  const char* transport_name() const override { return channel_->transport_name(); }

 private:
  void Unregister(uint64_t request) {
    std::vector<MemoryRange> ranges;
    {
      std::lock_guard lock(mutex_);
      ranges = std::move(ranges_[request]);
      ranges_.erase(request);
    }
    for (const MemoryRange& range : ranges) channel_->UnregisterMemory(range);
  }

  std::mutex mutex_;
  std::map<uint64_t, std::vector<MemoryRange>> ranges_;  // guarded by mutex_
  std::unique_ptr<ClientChannel> channel_;               // first to go: it calls back
};

// Shared memory of some kind, with a TCP stream for what cannot be shared.
class Shm : public OnLoops {
 public:
  Shm(int streams, MemoryKind memory) {
    rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) std::abort();
    files.rlim_cur = files.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &files) != 0) std::abort();
    ScatteredBuffer::UseMemory(memory);
    for (int i = 0; i < streams; ++i) {
      server_loops_.push_back(std::make_unique<EventLoop>("t-server"));
      client_loops_.push_back(std::make_unique<EventLoop>("t-client"));
    }
    server_ = std::make_unique<shm::ShmServerChannel>(
        ServerChannelContext{.on_closed = [this](const absl::Status&) { ++broken_; }});
    ClientChannelContext context{.on_closed = [this](const absl::Status&) { ++broken_; }};
    context.deadline_ns = SoonNs();
    for (int i = 0; i < streams; ++i) {
      SocketPair pair = LocalPair();
      context.shared_streams.push_back({pair.first.release(), client_loops_[i].get()});
      if (!server_->AddSharedStream(pair.second.release(), server_loops_[i].get(), i == 0)) std::abort();
    }
    SocketPair pair = TcpPair();
    context.streams.push_back({pair.first.release(), client_loops_[0].get()});
    if (!server_->AddStream(pair.second.release(), server_loops_[0].get())) std::abort();
    auto client = shm::ShmClientChannel::Create(std::move(context));
    if (!client.ok()) std::abort();
    client_ = std::make_unique<RegisteringChannel>(*std::move(client));
  }
  ~Shm() override {
    End();
    ScatteredBuffer::UseMemory(MemoryKind::kPrivate);
  }
};

#if QUARRY_WITH_UCX
// Over lanes of some kind. QUARRY_TEST_UCX_LIBRARY: of another UCX than the system's.
class Ucx : public OnLoops {
 public:
  Ucx(const char* lanes, UcxOptions::Rma rma) {
    if (setenv("UCX_TLS", lanes, 1) != 0) std::abort();
    UcxOptions options{.libucp = "", .trusted_fabric = false, .rma = rma};
    if (const char* library = std::getenv("QUARRY_TEST_UCX_LIBRARY"); library != nullptr) options.libucp = library;
    server_loops_.push_back(std::make_unique<EventLoop>("t-server"));
    client_loops_.push_back(std::make_unique<EventLoop>("t-client"));
    host_ = Must(MakeUcxHost(options));
    server_ = Must(MakeServerChannel("ucx", {.on_closed = [this](const absl::Status&) { ++broken_; }, .ucx = host_}));
    SocketPair pair = LocalPair();
    ClientChannelContext context{.on_closed = [this](const absl::Status&) { ++broken_; }};
    context.deadline_ns = SoonNs();
    context.ucx_stream = {pair.first.release(), client_loops_[0].get()};
    context.ucx = options;
    if (!server_->AddUcxStream(pair.second.release(), server_loops_[0].get())) std::abort();
    client_ = Must(MakeClientChannel("ucx", std::move(context)));
    if (rma == UcxOptions::Rma::kAlways) client_ = std::make_unique<RegisteringChannel>(std::move(client_));
  }
  ~Ucx() override {
    server_.reset();
    client_.reset();
    host_->Shutdown();
    End();
  }

 private:
  template <typename T>
  static T Must(absl::StatusOr<T> made) {
    if (made.ok()) return *std::move(made);
    std::fprintf(stderr, "%s\n", made.status().ToString().c_str());
    std::abort();
  }

  std::shared_ptr<UcxHost> host_;
};
#endif

}  // namespace

std::vector<LinkKind> AllLinks() {
  return {
    {"loopback", []() -> std::unique_ptr<Link> { return std::make_unique<Loopback>(); }},
        {"tcp_1_stream", []() -> std::unique_ptr<Link> { return std::make_unique<Tcp>(1, 1); }},
        {"tcp_3_streams_2_loops", []() -> std::unique_ptr<Link> { return std::make_unique<Tcp>(3, 2); }},
        {"shm_memfd", []() -> std::unique_ptr<Link> { return std::make_unique<Shm>(1, MemoryKind::kSealedMemfd); }},
        {"shm_memfd_2_streams",
         []() -> std::unique_ptr<Link> { return std::make_unique<Shm>(2, MemoryKind::kSealedMemfd); }},
        {"shm_file", []() -> std::unique_ptr<Link> { return std::make_unique<Shm>(1, MemoryKind::kShmFile); }},
        {"shm_process", []() -> std::unique_ptr<Link> { return std::make_unique<Shm>(1, MemoryKind::kPrivate); }},
#if QUARRY_WITH_UCX
        {"ucx_tcp", []() -> std::unique_ptr<Link> { return std::make_unique<Ucx>("tcp", UcxOptions::Rma::kNever); }},
        {"ucx_shm",
         []() -> std::unique_ptr<Link> { return std::make_unique<Ucx>("posix,self,tcp", UcxOptions::Rma::kNever); }},
        // By UCX's software: there is no adapter here that does it.
        {"ucx_rma_tcp",
         []() -> std::unique_ptr<Link> { return std::make_unique<Ucx>("tcp", UcxOptions::Rma::kAlways); }},
        {"ucx_rma_shm",
         []() -> std::unique_ptr<Link> { return std::make_unique<Ucx>("posix,self,tcp", UcxOptions::Rma::kAlways); }},
#endif
  };
}

MemoryRange RangeOf(absl::Span<const Segment> segments) {
  std::byte* begin = segments[0].base;
  std::byte* end = begin;
  for (const Segment& segment : segments) {
    begin = std::min(begin, segment.base);
    end = std::max(end, segment.base + (segment.count - 1) * segment.stride + segment.length);
  }
  return {begin, static_cast<size_t>(end - begin)};
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
