// What Client forwards to: namespaces, registered memory, the session in force, and how
// operations begin.
#ifndef QUARRY_CLIENT_CLIENT_IMPL_H_
#define QUARRY_CLIENT_CLIENT_IMPL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/call_operation.h"
#include "client/counters.h"
#include "client/fork_guard.h"
#include "client/gpu_ranges.h"
#include "client/gpu_transfers.h"
#include "client/memory_registry.h"
#include "client/namespace_state.h"
#include "client/operation.h"
#include "client/reconnector.h"
#include "client/session.h"
#include "common/net/event_loop.h"
#include "quarry/client.h"

namespace quarry {

// Thread-safe.
class ClientImpl : public std::enable_shared_from_this<ClientImpl> {
 public:
  using Queue = std::shared_ptr<CompletionQueue::Impl>;

  static absl::StatusOr<std::shared_ptr<ClientImpl>> Create(const ClientOptions& options);
  // In a forked child, where nothing of the parent's threads and connections may be
  // touched: keeps the object for ever. Else does nothing.
  static void AbandonInChild(std::shared_ptr<ClientImpl> impl);

  // Ends everything. Not in a child.
  void Shutdown();
  bool InOwner() const { return fork_guard_.InOwner(); }

  absl::StatusOr<Namespace> OpenNamespace(absl::string_view name, const ModelSpec& spec,
                                          const NamespaceOptions& options);
  absl::StatusOr<MemoryRegion> RegisterMemory(MemoryRange range);
  absl::StatusOr<SharedMemory> AllocateShared(size_t bytes);
  void UnregisterMemory(MemoryRange range);

  // Whether the caller waits for the operation as soon as it has begun.
  enum class Caller : uint8_t { kGoesOn, kWaits };
  absl::StatusOr<OperationId> BeginMatch(const Namespace& ns, absl::Span<const Chain> chains,
                                         const MatchOptions& options, Queue queue, uint64_t user_data, Caller caller);
  absl::StatusOr<OperationId> BeginGet(const Namespace& ns, std::vector<Item> items, const GetOptions& options,
                                       Queue queue, uint64_t user_data);
  absl::StatusOr<OperationId> BeginPut(const Namespace& ns, std::vector<Item> items, const PutOptions& options,
                                       Queue queue, uint64_t user_data);
  absl::StatusOr<OperationId> BeginFetch(const Namespace& ns, absl::Span<const Chain> chains,
                                         std::vector<std::vector<SegmentList>> destinations,
                                         const FetchOptions& options, Queue queue, uint64_t user_data);
  void Cancel(OperationId operation);

  absl::StatusOr<uint32_t> RenewLease(Lease* lease, uint32_t lease_ms);
  absl::Status ReleaseLease(const Lease& lease);
  // The same without waiting for the answer.
  void LetGoOf(const Lease& lease);
  absl::Status Touch(const Namespace& ns, absl::Span<const Chain> chains);

  ClientCounters counters() const;

 private:
  // What an operation needs to begin: where it goes, and the namespace's handle there.
  struct Target {
    std::shared_ptr<Session> session;
    std::shared_ptr<const Namespace::State> ns;
    uint32_t handle = 0;
  };

  explicit ClientImpl(const ClientOptions& options);

  // FailedPrecondition in a forked child.
  absl::Status CheckOwner() const;
  // Unavailable while there is no connection.
  absl::StatusOr<std::shared_ptr<Session>> CurrentSession() const;
  absl::StatusOr<Target> TargetOf(const Namespace& ns) const;
  Operation::Context MakeContext(Session* session, uint32_t deadline_ms, Queue queue, uint64_t user_data);
  // `body` becomes the operation's message. Not OK: nothing was begun.
  absl::StatusOr<OperationId> Begin(Session* session, const std::shared_ptr<Operation>& operation,
                                    wire::ClientMessage message);
  // The same for an operation that the caller waits for next.
  absl::StatusOr<OperationId> BeginAndRead(Session* session, const std::shared_ptr<ReplyOperation>& operation,
                                           wire::ClientMessage message);
  // InvalidArgument when it is not this client's.
  absl::Status CheckNamespace(const Namespace& ns) const;
  // Of items that passed the checks: OK with nullptr where they lie in host memory. A transport that
  // reaches a GPU's memory by itself would be chosen here, too.
  absl::StatusOr<std::unique_ptr<GpuRequest>> StagedItems(const Namespace& ns, std::vector<Item>* items) const;
  absl::StatusOr<std::unique_ptr<GpuRequest>> StagedFetch(const Namespace& ns, absl::Span<const Chain> chains,
                                                          uint32_t shard,
                                                          std::vector<std::vector<SegmentList>>* destinations) const;
  absl::StatusOr<OperationId> BeginStaged(std::unique_ptr<GpuRequest> request, uint32_t deadline_ms, Queue queue,
                                          uint64_t user_data);
  // nullptr while no GPU memory was registered.
  std::shared_ptr<GpuTransfers> gpu_transfers() const;
  absl::Status AdmitGpuMemory(MemoryRange range, int gpu);
  // Completes at once an operation that asks the node nothing.
  absl::StatusOr<OperationId> EndOptedOut(const Namespace& ns, Completion completion, bool item_completions,
                                          const Queue& queue, uint64_t user_data);
  // Sends `body` and waits for the reply.
  template <typename Body>
  absl::Status Call(Session* session, uint32_t deadline_ms, Body body, CallOperation::Taker take_reply);

  // Connects, opens the namespaces again, and makes the session the one in force.
  absl::Status Connect();
  absl::Status TryConnect();
  // Says which transport was picked, the first time.
  void LogTransport(const TransportChoice& choice);
  void Log(const std::string& line);
  // With memory_mutex_ held.
  void RegisterIn(Session* session, MemoryRange range);
  std::shared_ptr<Session> SessionInForce() const;
  absl::Status ReopenNamespaces(Session* session, int64_t deadline_ns);
  absl::StatusOr<std::shared_ptr<Namespace::State>> OpenIn(Session* session, uint32_t deadline_ms,
                                                           absl::string_view name, const ModelSpec& spec,
                                                           const NamespaceOptions& options);
  // On the first loop's thread.
  void OnSessionBroken(uint32_t number);

  const ClientOptions options_;
  const uint64_t serial_;  // of all clients of the process, from 1
  const ForkGuard fork_guard_;
  const std::shared_ptr<AtomicCounters> counters_ = std::make_shared<AtomicCounters>();
  const std::shared_ptr<LoadRates> load_rates_ = std::make_shared<LoadRates>();
  MemoryRegistry memory_;
  std::atomic<uint64_t> next_request_{2};  // 1 is Hello's
  std::vector<std::unique_ptr<EventLoop>> loops_;
  DialInterrupt dial_interrupt_;
  bool transport_logged_ = false;  // only while connecting, by one thread at a time
  std::mutex log_mutex_;           // one line at a time
  // Held while what is registered changes, here and at the node, and until a new session that
  // knows it is in force.
  std::mutex memory_mutex_;
  bool unreachable_logged_ = false;  // guarded by memory_mutex_

  GpuRanges gpu_ranges_;
  std::mutex gpu_start_mutex_;  // held while GPU memory is admitted

  mutable std::mutex mutex_;
  // The rest but the reconnector is guarded by mutex_.
  bool stopping_ = false;
  uint32_t sessions_ = 0;  // how many were begun
  std::shared_ptr<Session> session_;
  absl::Status why_disconnected_;
  std::vector<std::weak_ptr<Namespace::State>> namespaces_;
  std::shared_ptr<GpuTransfers> gpu_transfers_;

  Reconnector reconnector_;
};

}  // namespace quarry

#endif  // QUARRY_CLIENT_CLIENT_IMPL_H_
