// The server's end of a session that may have shared-memory streams: these move what they can
// reach, TCP streams the rest, and everything while there are no others.
#ifndef QUARRY_COMMON_TRANSPORT_SHM_SERVER_CHANNEL_H_
#define QUARRY_COMMON_TRANSPORT_SHM_SERVER_CHANNEL_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "common/transport/registry.h"
#include "common/transport/shm/server_stream.h"
#include "common/transport/tcp/server_channel.h"

namespace quarry::transport::shm {

class ShmServerChannel : public ServerChannel {
 public:
  explicit ShmServerChannel(ServerChannelContext context);
  ~ShmServerChannel() override;

  void Start(std::unique_ptr<Transfer> transfer) override;
  void Cancel(uint64_t request) override;
  void Close() override;
  bool AddStream(int fd, EventLoop* loop) override;
  bool AddSharedStream(int fd, EventLoop* loop, bool first) override;
  const char* transport_name() const override { return "shm"; }

 private:
  // The streams outlive the channel until their loops have closed them, and so does this.
  struct Shared : ServerShared {
    explicit Shared(ServerChannelContext context);
    const std::shared_ptr<std::atomic<bool>> told;  // of the end, or it is not to be told any more
    std::unique_ptr<tcp::TcpServerChannel> tcp;
  };

  std::vector<std::shared_ptr<ServerStream>> streams() const;

  const uint32_t max_streams_;
  const std::shared_ptr<Shared> shared_;
  mutable std::mutex mutex_;
  bool closed_ = false;                                 // guarded by mutex_
  bool has_first_ = false;                              // guarded by mutex_
  std::vector<std::shared_ptr<ServerStream>> streams_;  // guarded by mutex_
};

}  // namespace quarry::transport::shm

#endif  // QUARRY_COMMON_TRANSPORT_SHM_SERVER_CHANNEL_H_
