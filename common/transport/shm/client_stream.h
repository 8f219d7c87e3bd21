// One shared-memory stream at the client: verifies what the server has written, sums what it
// is about to read.
#ifndef QUARRY_COMMON_TRANSPORT_SHM_CLIENT_STREAM_H_
#define QUARRY_COMMON_TRANSPORT_SHM_CLIENT_STREAM_H_

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/transport/chunk_verifier.h"
#include "common/transport/shm/exposures.h"
#include "common/transport/shm/peer.h"
#include "common/transport/shm/stream.h"
#include "common/transport/transport.h"

namespace quarry::transport::shm {

// What the streams of one session share.
struct ClientShared {
  std::unique_ptr<ClientBoard> board;
  std::unique_ptr<Exposures> exposures;
  Peer server;
  std::function<void(absl::Status)> on_closed;                      // any thread; heeds the first call
  std::function<void(uint32_t key, absl::Status)> on_region_reply;  // any thread
  std::atomic<uint32_t> open_streams{0};                            // that the server has not closed
  std::atomic<bool> broken{false};

  // Whether nothing can be touched by it any more.
  bool server_gone() const { return server.dead() || (server.pidfd() < 0 && open_streams == 0); }
};

class ClientStream : public MessageSink, public std::enable_shared_from_this<ClientStream> {
 public:
  ClientStream(UniqueFd fd, EventLoop* loop, std::shared_ptr<ClientShared> shared, bool first);
  ~ClientStream() override;

  EventLoop* loop() const { return stream_.loop(); }
  // On the loop's thread.
  void Open();
  void Close();
  // `fds` may be empty.
  void Send(const Message& message, std::vector<UniqueFd> fds);

 private:
  class DeathWatch;
  // Answers are sent once so much has been summed.
  static constexpr size_t kFlushBytes = 1 << 20;
  static constexpr int64_t kLookAgainNs = 5'000'000;

  absl::Status OnMessage(const Message& message, std::deque<UniqueFd>* fds) override;
  void OnRoundEnd() override;
  void OnStreamBroken(const absl::Status& status) override;
  absl::Status OnWriting(const Message& message);
  absl::Status OnWritten(const Message& message);
  absl::Status TakeMeta(const Message& message, tcp::ItemMeta* meta);
  // Of an exposed item, of which so much is in place. False: it is not what was stored.
  bool Verify(const std::shared_ptr<ExposedRequest>& exposed, const ExposedRequest::Item& item, ItemId id,
              const tcp::ItemMeta& meta, size_t arrived);
  absl::Status OnSum(ItemId id);
  void OnWrongSize(ItemId id);
  void OnRead(ItemId id);
  void End(const absl::Status& status);
  // Until the stream is closed: the server can no more say what it releases.
  void LookForReleased();

  const std::shared_ptr<ClientShared> shared_;
  std::unique_ptr<DeathWatch> watch_;  // of the first stream
  std::vector<uint64_t> sums_;
  ChunkVerifier verifier_;
  // What the verifier is at, if anything.
  ItemId verifying_;
  std::weak_ptr<ExposedRequest> verifying_of_;
  uint64_t verifying_root_ = 0;  // stands for the sums that it compares with
  size_t verifying_offset_ = 0;
  size_t summed_ = 0;  // bytes, since the last Flush
  EventLoop::TimerId timer_ = 0;
  bool closed_ = false;
  Stream stream_;
};

}  // namespace quarry::transport::shm

#endif  // QUARRY_COMMON_TRANSPORT_SHM_CLIENT_STREAM_H_
