// A get (or the moving half of a fetch) under way.
#ifndef QUARRY_SERVER_SESSION_GET_REQUEST_H_
#define QUARRY_SERVER_SESSION_GET_REQUEST_H_

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
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
    uint64_t offset = 0;
    uint64_t bytes = 0;
    std::string hash;
  };

  void AddOne(const Item& item, ReadResult read);
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
  wire::GetProgress misses_;   // not yet sent
  std::atomic<uint64_t> moved_bytes_{0};
  // Items that are neither missed nor ended, and one for Start itself.
  std::atomic<uint32_t> open_items_{1};

  std::mutex mutex_;
  std::vector<uint32_t> dropped_;  // guarded by mutex_
  std::vector<uint32_t> corrupt_;  // guarded by mutex_
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SESSION_GET_REQUEST_H_
