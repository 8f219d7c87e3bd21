// One client's session: its namespaces, its requests, its streams.
#ifndef QUARRY_SERVER_SESSION_SESSION_H_
#define QUARRY_SERVER_SESSION_SESSION_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/session/messages.h"
#include "common/transport/transport.h"
#include "server/cache_service.h"
#include "server/scheduler/transfer_scheduler.h"
#include "server/session/get_request.h"
#include "server/session/session_stream.h"

namespace quarry::server {

// Lives on one control loop: every method is called there unless it says otherwise.
class Session : public std::enable_shared_from_this<Session> {
 public:
  // Payload that a session's puts may have reserved slots for at a time.
  static constexpr uint64_t kMaxReservedBytes = 64 << 20;
  // Items of all its requests under way: twice the largest request.
  static constexpr uint64_t kMaxItemsUnderWay = 128 << 10;
  // Items that wait, or waited when they were cancelled, for puts of others. More are not
  // waited for.
  static constexpr uint32_t kMaxWaits = 64 << 10;

  struct Parts {
    EventLoop* loop = nullptr;
    CacheService* service = nullptr;
    TransferScheduler* scheduler = nullptr;
    std::shared_ptr<transport::ServerChannel> channel;
    std::string id;      // the secret that data streams join with
    std::string client;  // for logs
    std::string tenant;
    uint32_t tenant_index = 0;
    std::string node;
    std::string view_digest;
    std::string socket;  // as HelloReply says it
    wire::UcxOffer ucx = wire::UcxOffer::kNone;
    // Called once when the session ends by itself.
    std::function<void(const std::shared_ptr<Session>&, absl::Status)> on_closed;
  };
  explicit Session(Parts parts);

  // `buffer` holds what came behind the hello that is answered here.
  void Open(UniqueFd fd, wire::MessageBuffer buffer, uint64_t hello_request, uint32_t minor);
  // Ends everything; the peer sees its connections close.
  void Close();
  void SendDraining();

  const std::string& id() const { return parts_.id; }
  const std::string& client() const { return parts_.client; }
  size_t requests() const { return requests_.size(); }
  const std::shared_ptr<transport::ServerChannel>& channel() const { return parts_.channel; }

  // Any thread. False: the session has all the data streams that it may have, for good.
  bool AdmitDataStream();

  // For requests. The first five from any thread.
  EventLoop* loop() const { return parts_.loop; }
  CacheService& service() const { return *parts_.service; }
  TransferScheduler& scheduler() const { return *parts_.scheduler; }
  TransferScheduler::SessionId scheduler_id() const { return scheduler_id_; }
  template <typename Body>
  void Send(uint64_t request, Body body) {
    if (stream_ != nullptr) stream_->Send({request, std::move(body)});
  }
  void Forget(uint64_t request);
  bool MayReserve(uint64_t bytes) const { return reserved_bytes_ == 0 || reserved_bytes_ + bytes <= max_reserved_; }
  void Reserve(uint64_t bytes) { reserved_bytes_ += bytes; }
  void Unreserve(uint64_t bytes) { reserved_bytes_ -= bytes; }
  // The request's OnRoom is called when MayReserve may have become true.
  void WaitForRoom(std::shared_ptr<Request> request) { room_queue_.push_back(std::move(request)); }
  void OfferRoom();
  // False: too many wait already. Each true is followed by one EndWait, when the put that is
  // waited for has ended.
  bool BeginWait() {
    if (waits_ >= kMaxWaits) return false;
    ++waits_;
    return true;
  }
  void EndWait() { --waits_; }

 private:
  static constexpr size_t kRememberedGets = 16;
  static constexpr uint64_t kRememberedItems = 64 << 10;

  void OnMessage(absl::string_view bytes);
  void Fail(uint64_t request, const absl::Status& status);
  void Fail(uint64_t request, Op op, const absl::Status& status);
  void FailOpen(uint64_t request, const wire::OpenNamespace& message, const absl::Status& status);

  void Handle(uint64_t request, const wire::OpenNamespace& message);
  void Handle(uint64_t request, const wire::Match& message);
  void Handle(uint64_t request, const wire::Get& message);
  void Handle(uint64_t request, const wire::FetchPrefix& message);
  void Handle(uint64_t request, const wire::Put& message);
  void Handle(uint64_t request, const wire::RenewLease& message);
  void Handle(uint64_t request, const wire::ReleaseLease& message);
  void Handle(uint64_t request, const wire::Touch& message);
  void Handle(uint64_t request, const wire::Cancel& message);
  void Handle(uint64_t request, const wire::Delivered& message);
  void Handle(uint64_t request, const wire::Credit& message);
  void Handle(uint64_t request, const wire::GetView& message);
  void Handle(uint64_t request, const wire::Hello& message);
  void Handle(uint64_t request, const wire::DataHello& message);
  void Handle(uint64_t request, const std::monostate& unknown);

  absl::StatusOr<const Namespace*> NamespaceOf(uint32_t handle) const;
  absl::Status CheckNew(uint32_t priority) const;
  absl::Status CheckItems(absl::string_view field, uint64_t items) const;
  absl::Status CheckGet(const Namespace& ns, const wire::Get& message) const;
  absl::Status CheckPut(const Namespace& ns, const wire::Put& message) const;
  absl::Status CheckFetch(const Namespace& ns, const wire::FetchPrefix& message) const;
  void StartFetch(uint64_t request, const Namespace& ns, const wire::FetchPrefix& message);
  template <typename SomeRequest>
  void Start(const std::shared_ptr<SomeRequest>& request) {
    items_under_way_ += request->items();
    request->Start();
  }
  void Remember(std::shared_ptr<GetRequest> get);

  const Parts parts_;
  const TransferScheduler::SessionId scheduler_id_;
  const uint64_t max_reserved_;
  std::unique_ptr<SessionStream> stream_;
  std::vector<const Namespace*> namespaces_;  // handle - 1 is the index
  std::map<uint64_t, std::shared_ptr<Request>> requests_;
  // Gets that are over but not yet confirmed: the client may still report corruption.
  std::list<std::shared_ptr<GetRequest>> delivered_pending_;
  uint64_t remembered_items_ = 0;
  uint64_t items_under_way_ = 0;
  uint32_t waits_ = 0;
  uint64_t reserved_bytes_ = 0;
  std::atomic<uint32_t> data_streams_{0};  // that were admitted; any thread
  std::deque<std::shared_ptr<Request>> room_queue_;
  bool closed_ = false;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SESSION_SESSION_H_
