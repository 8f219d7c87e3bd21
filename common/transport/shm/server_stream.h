// One shared-memory stream at the server: copies between slots and the client's memory on
// its loop's thread.
#ifndef QUARRY_COMMON_TRANSPORT_SHM_SERVER_STREAM_H_
#define QUARRY_COMMON_TRANSPORT_SHM_SERVER_STREAM_H_

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/transport/shm/board.h"
#include "common/transport/shm/item_copy.h"
#include "common/transport/shm/peer.h"
#include "common/transport/shm/region_table.h"
#include "common/transport/shm/stream.h"
#include "common/transport/tcp/server_stream.h"
#include "common/transport/transfer_inbox.h"
#include "common/transport/transport.h"

namespace quarry::transport::shm {

// What the streams of one session share.
struct ServerShared {
  std::function<void(absl::Status)> on_closed;  // any thread; heeds the first call
  // Moves what cannot be reached from here; outlives the streams' use of it.
  ServerChannel* by_stream = nullptr;
  RegionTable regions;
  Peer peer;  // constant once the first stream is there
  // Set once by the first stream, before `ready`.
  std::unique_ptr<ServerBoard> board;
  bool reaches_process = false;
  std::atomic<bool> ready{false};  // transfers may come
};

class ServerStream : public MessageSink, public TransferInbox {
 public:
  // `first`: it greets the client and takes its board.
  ServerStream(UniqueFd fd, EventLoop* loop, std::shared_ptr<ServerShared> shared, bool first);

 private:
  // What moves before other work of the loop has its turn, and between two looks at whether
  // it still should.
  static constexpr size_t kBudgetBytes = 1 << 20;
  static constexpr size_t kStepBytes = 256 << 10;
  static constexpr size_t kWarmBytes = 32 << 20;
  // A client that does not read is given no more to read.
  static constexpr size_t kMaxUnsentBytes = 1 << 20;
  static constexpr size_t kMaxNewRegions = 64;
  // Towards the end of an item that the client verifies meanwhile.
  static constexpr size_t kLastStepBytes = 64 << 10;

  // A read that the client was asked to sum, which it does while the read is copied.
  struct Asked {
    enum class Answer : uint8_t { kNone, kSummed, kAbsent };
    Answer answer = Answer::kNone;
    uint64_t root = 0;
    std::unique_ptr<Transfer> copied;  // and waits for the answer
  };

  // The rest on the loop's thread.
  void Open() override;
  void Work() override;
  void Cancel(uint64_t request) override;
  void Close() override;
  void TakeInbox();
  // Begins the next transfer. False: there is none, or it must wait.
  bool BeginNext();
  void Begin(std::unique_ptr<Transfer> transfer);
  bool AskForSum();
  void MoveOn(size_t* budget);
  void EndActive(ItemCopy::Progress progress);
  void CloseCopy(uint64_t request);
  void Break(const absl::Status& status);
  void FinishAll(TransferStatus status);
  void SendWritten(MessageType type, const Transfer& transfer, bool with_sums);
  // That a part of the active write is in place, where the client would else have to wait.
  void SendWriting();
  // With the client's root, or 0 if it sums nothing.
  void EndRead(std::unique_ptr<Transfer> transfer, uint64_t root);
  void EndAsked(Asked asked);

  absl::Status OnMessage(const Message& message, std::deque<UniqueFd>* fds) override;
  void OnRoundEnd() override { Work(); }
  void OnDrained() override { PostWork(); }
  void OnStreamBroken(const absl::Status& status) override;
  absl::Status OnBoard(const Message& message, std::deque<UniqueFd>* fds);
  absl::Status OnRegion(const Message& message, std::deque<UniqueFd>* fds);
  absl::StatusOr<std::unique_ptr<Region>> MakeRegion(const RegionClaim& claim, UniqueFd file);
  void WarmNewRegions();
  void ReplyToRegion(uint32_t key, const absl::Status& status);
  void OnAnswer(ItemId id, Asked::Answer answer, uint64_t root);

  const std::shared_ptr<ServerShared> shared_;
  const bool first_;
  std::string nonce_;

  std::deque<std::unique_ptr<Transfer>> queue_;
  std::unordered_map<ItemId, Asked, ItemIdHash> asked_;
  std::unique_ptr<Transfer> active_;
  std::unique_ptr<ItemCopy> copy_;
  size_t told_ = 0;  // bytes of the active write, by kWriting
  std::deque<std::shared_ptr<Region>> new_regions_;
  std::string meta_;
  Stream stream_;
};

}  // namespace quarry::transport::shm

#endif  // QUARRY_COMMON_TRANSPORT_SHM_SERVER_STREAM_H_
