// The server's end of a session whose payload may move by UCX: once the client has introduced its
// worker all of it does, before that as the inner channel moves it.
#ifndef QUARRY_COMMON_TRANSPORT_UCX_SERVER_CHANNEL_H_
#define QUARRY_COMMON_TRANSPORT_UCX_SERVER_CHANNEL_H_

#include <atomic>
#include <memory>
#include <mutex>

#include "common/transport/registry.h"
#include "common/transport/ucx/server_stream.h"

namespace quarry::transport::ucx {

class UcxServerChannel : public ServerChannel {
 public:
  // `make_inner` is given the context that it shall be made with.
  using MakeInner = std::function<std::unique_ptr<ServerChannel>(ServerChannelContext)>;
  UcxServerChannel(ServerChannelContext context, const MakeInner& make_inner);
  ~UcxServerChannel() override;

  void Start(std::unique_ptr<Transfer> transfer) override;
  void Cancel(uint64_t request) override;
  void Close() override;
  bool AddStream(int fd, EventLoop* loop) override { return inner_->AddStream(fd, loop); }
  bool AddSharedStream(int fd, EventLoop* loop, bool first) override {
    return inner_->AddSharedStream(fd, loop, first);
  }
  bool AddUcxStream(int fd, EventLoop* loop) override;
  const char* transport_name() const override { return ready_->load() ? "ucx" : inner_->transport_name(); }

 private:
  std::shared_ptr<ServerStream> stream() const;

  const std::shared_ptr<Host> host_;
  const int64_t stuck_ns_;
  std::function<void(absl::Status)> on_closed_;  // heeds the first call
  // With the stream, which outlives the channel until its loop has closed it.
  const std::shared_ptr<std::atomic<bool>> told_;
  const std::shared_ptr<std::atomic<bool>> ready_;
  std::unique_ptr<ServerChannel> inner_;
  mutable std::mutex mutex_;
  bool closed_ = false;                   // guarded by mutex_
  std::shared_ptr<ServerStream> stream_;  // guarded by mutex_
};

}  // namespace quarry::transport::ucx

#endif  // QUARRY_COMMON_TRANSPORT_UCX_SERVER_CHANNEL_H_
