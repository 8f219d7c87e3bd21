// The client's end of a session with shared-memory streams: the server reaches what it can of
// the registered memory itself; the rest moves over TCP streams.
#ifndef QUARRY_COMMON_TRANSPORT_SHM_CLIENT_CHANNEL_H_
#define QUARRY_COMMON_TRANSPORT_SHM_CLIENT_CHANNEL_H_

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "common/transport/descriptor.h"
#include "common/transport/registry.h"
#include "common/transport/shm/backing.h"
#include "common/transport/shm/client_stream.h"
#include "common/transport/tcp/client_channel.h"

namespace quarry::transport::shm {

class ShmClientChannel : public ClientChannel {
 public:
  // Greets the server on the first of `shared_streams`.
  static absl::StatusOr<std::unique_ptr<ClientChannel>> Create(ClientChannelContext context);
  // Returns when the server touches nothing any more. Not from a stream's callback.
  ~ShmClientChannel() override;

  void Expose(uint64_t request, std::shared_ptr<ExposedRequest> exposed) override;
  Release Withdraw(uint64_t request, std::function<void()> released) override;
  absl::Status RegisterMemory(MemoryRange range) override;
  void UnregisterMemory(MemoryRange range) override;
  const char* transport_name() const override { return "shm"; }

 private:
  class ItemList;

  ShmClientChannel(ClientChannelContext context, std::shared_ptr<ClientShared> shared, bool reaches_process,
                   std::string why_not, std::vector<UniqueFd> streams);
  std::shared_ptr<const RegisteredRanges> regions() const;
  // Asks the server to take the range as one of that kind.
  absl::StatusOr<uint32_t> Offer(MemoryRange range, RegionKind kind, const Backing& backing);
  absl::StatusOr<uint32_t> OfferAny(MemoryRange range);
  void Retire(uint32_t key);
  void OnRegionReply(uint32_t key, absl::Status status);

  const std::shared_ptr<ClientShared> shared_;
  const bool reaches_process_;
  const std::string why_not_;                           // it does not
  std::vector<std::shared_ptr<ClientStream>> streams_;  // constant
  std::unique_ptr<tcp::TcpClientChannel> tcp_;

  mutable std::mutex mutex_;
  std::condition_variable replied_;
  std::shared_ptr<const RegisteredRanges> regions_ = std::make_shared<RegisteredRanges>();  // guarded by mutex_
  std::map<uint32_t, absl::Status> replies_;                                                // guarded by mutex_
  uint32_t next_key_ = 0;                                                                   // guarded by mutex_
};

}  // namespace quarry::transport::shm

#endif  // QUARRY_COMMON_TRANSPORT_SHM_CLIENT_CHANNEL_H_
