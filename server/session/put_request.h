// A put under way: offers its items to the store, pulls what is wanted, publishes it.
#ifndef QUARRY_SERVER_SESSION_PUT_REQUEST_H_
#define QUARRY_SERVER_SESSION_PUT_REQUEST_H_

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

class PutRequest : public Request {
 public:
  PutRequest(std::shared_ptr<Session> session, uint64_t id, const Namespace* ns, const wire::Put& put);

  void Start() { Arm(), Advance(); }
  uint64_t items() const override { return items_.size(); }
  void Abort() override;
  void OnRoom() override { room_wanted_ = false, Advance(); }

 private:
  class SlotTransfer;
  struct Item {
    uint32_t group = 0;
    uint32_t shard = 0;
    uint64_t depth = 0;
    uint64_t bytes = 0;
    // Views of bytes_.
    absl::string_view hash;
    absl::string_view parent;
  };
  struct Ended {
    uint32_t number = 0;
    PutOutcome outcome = PutOutcome::kUnknown;
    RefusalReason reason = RefusalReason::kNone;
  };

  void CopyItems(const wire::Put& put);
  // Offers items while the session may reserve more, and answers what is decided.
  void Advance();
  void OfferItem(uint32_t number, std::vector<std::unique_ptr<transport::Transfer>>* wanted);
  bool WaitForOther(uint32_t number);
  void OfferAgain(uint32_t number);
  void Decide(uint32_t number, PutOutcome outcome, RefusalReason reason);
  void SendDecided();
  // Any thread.
  void OnTransferEnded(Ended ended, uint64_t bytes);
  void TakeEnded();

  const Namespace* const ns_;
  const uint32_t priority_;
  const uint32_t retain_ms_;
  const bool no_ssd_;
  const bool wait_in_flight_;
  std::string bytes_;  // all hashes and parents
  std::vector<Item> items_;
  uint32_t next_ = 0;       // first item not yet offered
  uint32_t undecided_ = 0;  // items without outcome
  bool aborted_ = false;
  bool room_wanted_ = false;
  std::vector<bool> waiting_;   // for another put of the same shard, or in again_
  std::deque<uint32_t> again_;  // to be offered again when there is room
  wire::PutProgress decided_;   // not yet sent

  std::mutex mutex_;
  std::vector<Ended> ended_;  // guarded by mutex_
  uint64_t ended_bytes_ = 0;  // guarded by mutex_
  bool take_posted_ = false;  // guarded by mutex_
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SESSION_PUT_REQUEST_H_
