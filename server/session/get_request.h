// A get (or the moving half of a fetch) under way.
#ifndef QUARRY_SERVER_SESSION_GET_REQUEST_H_
#define QUARRY_SERVER_SESSION_GET_REQUEST_H_

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/session/messages.h"
#include "common/transport/transport.h"
#include "server/block_store.h"
#include "server/session/request.h"

namespace quarry::server {

class GetRequest : public Request {
 public:
  struct Options {
    uint32_t deadline_ms = 0;
    uint32_t priority = 0;
    uint64_t credit_bytes = 0;  // 0: no bound
    bool wait_in_flight = false;
  };
  GetRequest(std::shared_ptr<Session> session, uint64_t id, Op op, const Namespace* ns, const Options& options);

  // Items are numbered from 0 in the order in which they are added; Skip leaves numbers
  // out. bytes = 0: to the end of the shard.
  void Add(uint32_t group, uint32_t shard, HashSpan hashes, uint64_t offset, uint64_t bytes);
  void Skip(uint32_t items) { next_item_ += items; }
  // Until the request ends.
  void Hold(BlockPins pins) { pins_ = std::move(pins); }
  // Answers what misses, and starts the rest.
  void Start();

  uint64_t items() const override { return items_.size(); }
  void AddCredit(uint64_t bytes);
  void Abort() override;
  // The client says that what came under this item fails its sums: the block is dropped if
  // that is so here, too.
  void CheckStored(uint32_t item);

 private:
  class SlotTransfer;
  struct Item {
    uint32_t number = 0;
    uint32_t group = 0;
    uint32_t shard = 0;
    PayloadPart part;
    std::string hash;
  };

  // A shard on an SSD. Loaded when its turn comes: of one request, so much is in memory, or on
  // its way there, and not yet sent.
  static constexpr uint64_t kLoadAheadBytes = 32 << 20;
  struct Cold {
    Item item;
    uint64_t payload_bytes = 0;
  };

  void AddOne(const Item& item, ReadResult read);
  void Miss(const Item& item, MissCause cause);
  // Starts as many loads as may be.
  void LoadMore();
  void Load(std::vector<Cold> items);
  // Any thread: what came is taken by the loop, as much as there is at once.
  void Arrive(size_t loading_index, ReadResult read);
  void TakeArrived();
  void OnLoaded(size_t loading_index, ReadResult read);
  // Any thread; as Arrive.
  void EndCold(uint64_t payload_bytes);
  void OnColdEnded(uint64_t payload_bytes);
  // True: it will be read again when the put that is under way has ended.
  bool WaitForPut(const Item& item);
  void ReadAgain(size_t waiting_index);
  void SubmitWithinCredit();
  // Any thread.
  void OnTransferEnded(uint32_t number, transport::TransferStatus status);
  // One open item less; the last one ends the request.
  void CloseItem();
  void SendEnd();

  const Namespace* const ns_;
  const Options options_;
  uint32_t next_item_ = 0;
  bool started_ = false;
  bool aborted_ = false;
  uint64_t credit_ = 0;         // all that was ever given
  uint64_t started_bytes_ = 0;  // of items that were started
  std::vector<Item> items_;     // as added
  std::deque<std::unique_ptr<transport::Transfer>> unsubmitted_;
  std::vector<Item> waiting_;  // for puts; hash empty: no longer
  std::deque<Cold> cold_;      // not yet asked for
  std::vector<Cold> loading_;  // asked for; hash empty: no longer
  uint64_t cold_bytes_ = 0;    // of those that were asked for and have not ended
  BlockPins pins_;
  wire::GetProgress misses_;  // not yet sent
  std::atomic<uint64_t> moved_bytes_{0};
  // Items that are neither missed nor ended, and one for Start itself.
  std::atomic<uint32_t> open_items_{1};

  std::atomic<uint64_t> ended_cold_bytes_{0};  // that the loop has not been told of

  std::mutex mutex_;
  std::vector<std::pair<size_t, ReadResult>> arrived_;  // guarded by mutex_; by index in loading_
  std::vector<uint32_t> dropped_;                       // guarded by mutex_
  std::vector<uint32_t> corrupt_;                       // guarded by mutex_
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SESSION_GET_REQUEST_H_
