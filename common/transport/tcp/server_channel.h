// The server's end of the TCP transport: the data streams of one session.
#ifndef QUARRY_COMMON_TRANSPORT_TCP_SERVER_CHANNEL_H_
#define QUARRY_COMMON_TRANSPORT_TCP_SERVER_CHANNEL_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "common/transport/registry.h"

namespace quarry::transport::tcp {

class ServerStream;

class TcpServerChannel : public ServerChannel {
 public:
  explicit TcpServerChannel(ServerChannelContext context);
  ~TcpServerChannel() override;

  void Start(std::unique_ptr<Transfer> transfer) override;
  void Cancel(uint64_t request) override;
  void Close() override;
  bool AddStream(int fd, EventLoop* loop) override;
  const char* transport_name() const override { return "tcp"; }

 private:
  // With the streams, which outlive the channel until their loops have closed them.
  struct Shared {
    explicit Shared(ServerChannelContext channel_context) : context(std::move(channel_context)) {}
    const ServerChannelContext context;
    std::atomic<bool> told{false};  // on_closed was called, or is not to be
  };

  std::vector<std::shared_ptr<ServerStream>> streams() const;

  const std::shared_ptr<Shared> shared_;
  mutable std::mutex mutex_;
  bool closed_ = false;                                 // guarded by mutex_
  std::vector<std::shared_ptr<ServerStream>> streams_;  // guarded by mutex_
};

}  // namespace quarry::transport::tcp

#endif  // QUARRY_COMMON_TRANSPORT_TCP_SERVER_CHANNEL_H_
