// The public classes: they forward to ClientImpl, and wait where a call blocks.
#include "quarry/client.h"

#include <utility>

#include "client/client_impl.h"

namespace quarry {
namespace {

// Waits for an operation that was begun on `queue`, until its buffers are free too.
absl::StatusOr<Completion> Await(const absl::StatusOr<OperationId>& begun, CompletionQueue::Impl* queue) {
  if (!begun.ok()) return begun.status();
  while (true) {
    Completion done = *queue->Next(-1);
    if (done.kind != Completion::Kind::kDone) continue;  // an item
    if (done.held) queue->Next(-1);
    if (!done.status.ok()) return done.status;
    return done;
  }
}

ClientImpl::Queue MakeWaitQueue() {
  return std::make_shared<CompletionQueue::Impl>(CompletionQueue::Impl::Wakeup::kWaitOnly);
}

absl::Status CheckQueue(const CompletionQueue* queue) {
  return queue == nullptr ? absl::InvalidArgumentError("queue: must not be null") : absl::OkStatus();
}

}  // namespace

MemoryRegion::MemoryRegion(MemoryRegion&& other) noexcept
    : client_(std::move(other.client_)), range_(std::exchange(other.range_, {})) {}

MemoryRegion& MemoryRegion::operator=(MemoryRegion&& other) noexcept {
  std::swap(client_, other.client_);
  std::swap(range_, other.range_);
  return *this;
}

MemoryRegion::~MemoryRegion() {
  if (client_ == nullptr) return;
  if (client_->InOwner()) {
    client_->UnregisterMemory(range_);
  } else {
    ClientImpl::AbandonInChild(std::move(client_));
  }
}

absl::StatusOr<MemoryRegion> ClientImpl::RegisterMemory(MemoryRange range) {
  if (absl::Status status = CheckOwner(); !status.ok()) return status;
  const auto gpu = GpuOf(range);
  if (!gpu.ok()) return gpu.status();
  if (gpu->has_value()) {
    if (absl::Status status = AdmitGpuMemory(range, **gpu); !status.ok()) return status;
  }
  {
    std::lock_guard lock(memory_mutex_);
    if (absl::Status status = memory_.Add(range); !status.ok()) return status;
    if (gpu->has_value()) {
      gpu_ranges_.Add(range, **gpu);
    } else if (const auto session = SessionInForce(); session != nullptr) {
      RegisterIn(session.get(), range);
    }
  }
  MemoryRegion region;
  region.client_ = shared_from_this();
  region.range_ = range;
  return region;
}

absl::StatusOr<std::unique_ptr<Client>> Client::Create(const ClientOptions& options) {
  auto impl = ClientImpl::Create(options);
  if (!impl.ok()) return impl.status();
  return std::unique_ptr<Client>(new Client(std::move(*impl)));
}

Client::Client(std::shared_ptr<ClientImpl> impl) : impl_(std::move(impl)) {}

Client::~Client() {
  if (impl_->InOwner()) {
    impl_->Shutdown();
  } else {
    ClientImpl::AbandonInChild(std::move(impl_));
  }
}

absl::StatusOr<Namespace> Client::OpenNamespace(absl::string_view name, const ModelSpec& spec,
                                                const NamespaceOptions& options) {
  return impl_->OpenNamespace(name, spec, options);
}

absl::StatusOr<MemoryRegion> Client::RegisterMemory(void* base, size_t bytes) {
  return impl_->RegisterMemory({static_cast<std::byte*>(base), bytes});
}

absl::StatusOr<SharedMemory> Client::AllocateShared(size_t bytes) { return impl_->AllocateShared(bytes); }

absl::StatusOr<OperationId> Client::MatchAsync(const Namespace& ns, absl::Span<const Chain> chains,
                                               const MatchOptions& options, CompletionQueue* queue,
                                               uint64_t user_data) {
  if (absl::Status status = CheckQueue(queue); !status.ok()) return status;
  return impl_->BeginMatch(ns, chains, options, queue->impl_, user_data, ClientImpl::Caller::kGoesOn);
}

absl::StatusOr<OperationId> Client::GetAsync(const Namespace& ns, std::vector<Item> items, const GetOptions& options,
                                             CompletionQueue* queue, uint64_t user_data) {
  if (absl::Status status = CheckQueue(queue); !status.ok()) return status;
  return impl_->BeginGet(ns, std::move(items), options, queue->impl_, user_data);
}

absl::StatusOr<OperationId> Client::PutAsync(const Namespace& ns, std::vector<Item> items, const PutOptions& options,
                                             CompletionQueue* queue, uint64_t user_data) {
  if (absl::Status status = CheckQueue(queue); !status.ok()) return status;
  return impl_->BeginPut(ns, std::move(items), options, queue->impl_, user_data);
}

absl::StatusOr<OperationId> Client::FetchPrefixAsync(const Namespace& ns, absl::Span<const Chain> chains,
                                                     std::vector<std::vector<SegmentList>> destinations,
                                                     const FetchOptions& options, CompletionQueue* queue,
                                                     uint64_t user_data) {
  if (absl::Status status = CheckQueue(queue); !status.ok()) return status;
  return impl_->BeginFetch(ns, chains, std::move(destinations), options, queue->impl_, user_data);
}

void Client::Cancel(OperationId operation) { impl_->Cancel(operation); }

absl::StatusOr<MatchResult> Client::Match(const Namespace& ns, absl::Span<const Chain> chains,
                                          const MatchOptions& options) {
  const auto queue = MakeWaitQueue();
  auto done = Await(impl_->BeginMatch(ns, chains, options, queue, 0, ClientImpl::Caller::kWaits), queue.get());
  if (!done.ok()) return done.status();
  return std::move(*done->match);
}

absl::StatusOr<TransferResult> Client::Get(const Namespace& ns, std::vector<Item> items, const GetOptions& options) {
  const auto queue = MakeWaitQueue();
  auto done = Await(impl_->BeginGet(ns, std::move(items), options, queue, 0), queue.get());
  if (!done.ok()) return done.status();
  return std::move(*done->transfer);
}

absl::StatusOr<TransferResult> Client::Put(const Namespace& ns, std::vector<Item> items, const PutOptions& options) {
  const auto queue = MakeWaitQueue();
  auto done = Await(impl_->BeginPut(ns, std::move(items), options, queue, 0), queue.get());
  if (!done.ok()) return done.status();
  return std::move(*done->transfer);
}

absl::StatusOr<FetchResult> Client::FetchPrefix(const Namespace& ns, absl::Span<const Chain> chains,
                                                std::vector<std::vector<SegmentList>> destinations,
                                                const FetchOptions& options) {
  const auto queue = MakeWaitQueue();
  auto done = Await(impl_->BeginFetch(ns, chains, std::move(destinations), options, queue, 0), queue.get());
  if (!done.ok()) return done.status();
  return std::move(*done->fetch);
}

absl::StatusOr<uint32_t> Client::RenewLease(Lease* lease, uint32_t lease_ms) {
  return impl_->RenewLease(lease, lease_ms);
}

absl::Status Client::ReleaseLease(const Lease& lease) { return impl_->ReleaseLease(lease); }

absl::Status Client::Touch(const Namespace& ns, absl::Span<const Chain> chains) { return impl_->Touch(ns, chains); }

ClientCounters Client::counters() const { return impl_->counters(); }

}  // namespace quarry
