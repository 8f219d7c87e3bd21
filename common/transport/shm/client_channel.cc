#include "common/transport/shm/client_channel.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/memory_file.h"
#include "common/transport/shm/greeting.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace quarry::transport::shm {
namespace {

// For the server's answer about a region; mapping a large one takes a while.
constexpr auto kPatience = std::chrono::seconds(30);
constexpr auto kLookForBreak = std::chrono::milliseconds(20);
constexpr auto kLookAgain = std::chrono::microseconds(50);
// Of one request. Longer lists move over data streams.
constexpr size_t kMaxDescriptors = 2 << 20;

size_t Address(const std::byte* pointer) { return reinterpret_cast<size_t>(pointer); }

}  // namespace

// The items of a request as its board shows them.
class ShmClientChannel::ItemList {
 public:
  explicit ItemList(const RegisteredRanges& ranges) : describer_(ranges) {}

  void Add(const ExposedRequest::Item& item) {
    ItemRecord& record = records.emplace_back();
    record.bytes = item.bytes;
    record.flags = item.checksum ? ItemRecord::kChecksum : 0;
    record.descriptors_at = descriptors.size();
    if (!describer_.Describe(item.segments, kMaxDescriptors, &descriptors)) {
      record.flags |= ItemRecord::kByStream;
      by_stream = true;
      return;
    }
    record.descriptors = static_cast<uint32_t>(descriptors.size() - record.descriptors_at);
    if (record.descriptors != 1) return;
    record.only = descriptors.back();
    descriptors.pop_back();
  }

  std::vector<ItemRecord> records;
  std::vector<Descriptor> descriptors;
  bool by_stream = false;  // some items

 private:
  Describer describer_;
};

absl::StatusOr<std::unique_ptr<ClientChannel>> ShmClientChannel::Create(ClientChannelContext context) {
  std::vector<UniqueFd> streams;
  for (const JoinedStream& joined : context.shared_streams) streams.emplace_back(joined.fd);
  if (streams.empty()) return absl::FailedPreconditionError("no stream for shared memory");
  auto shared = std::make_shared<ClientShared>();
  auto board = ClientBoard::Create();
  if (!board.ok()) return board.status();
  shared->board = *std::move(board);
  shared->exposures = std::make_unique<Exposures>(shared->board.get());
  shared->server = Peer::Of(streams[0].get());
  auto greeting = Greet(streams[0].get(), *shared, context.deadline_ns);
  if (!greeting.ok()) return greeting.status();
  return std::unique_ptr<ClientChannel>(new ShmClientChannel(std::move(context), std::move(shared),
                                                             greeting->reaches_process, std::move(greeting->why_not),
                                                             std::move(streams)));
}

ShmClientChannel::ShmClientChannel(ClientChannelContext context, std::shared_ptr<ClientShared> shared,
                                   bool reaches_process, std::string why_not, std::vector<UniqueFd> streams)
    : shared_(std::move(shared)), reaches_process_(reaches_process), why_not_(std::move(why_not)) {
  // Streams break one by one, on different threads; the first tells.
  auto once = std::make_shared<std::once_flag>();
  shared_->on_closed = [once, on_closed = context.on_closed](const absl::Status& status) {
    std::call_once(*once, [&] { on_closed(status); });
  };
  shared_->on_region_reply = [this](uint32_t key, absl::Status status) { OnRegionReply(key, std::move(status)); };
  ClientChannelContext for_tcp;
  for_tcp.streams = context.streams;
  for_tcp.on_closed = shared_->on_closed;
  tcp_ = std::make_unique<tcp::TcpClientChannel>(for_tcp);
  for (size_t i = 0; i < streams.size(); ++i) {
    streams_.push_back(std::make_shared<ClientStream>(std::move(streams[i]), context.shared_streams[i].loop, shared_,
                                                      /*first=*/i == 0));
  }
  for (const auto& stream : streams_) stream->loop()->Post([stream] { stream->Open(); });
}

ShmClientChannel::~ShmClientChannel() {
  // A server that is stopped in the midst of a copy is waited for: to return before it has
  // ended would be to give back memory that is still written to.
  while (shared_->exposures->CloseGates() && !shared_->server_gone()) std::this_thread::sleep_for(kLookAgain);
  for (const auto& stream : streams_) stream->loop()->Run([&stream] { stream->Close(); });
  tcp_.reset();
  shared_->exposures->Clear();
}

std::shared_ptr<const RegisteredRanges> ShmClientChannel::regions() const {
  std::lock_guard lock(mutex_);
  return regions_;
}

void ShmClientChannel::Expose(uint64_t request, std::shared_ptr<ExposedRequest> exposed) {
  const auto known = regions();
  ItemList items(*known);
  for (uint32_t i = 0; const ExposedRequest::Item* item = exposed->item(i); ++i) items.Add(*item);
  if (items.by_stream) tcp_->Expose(request, exposed);
  const bool shown =
      shared_->exposures->Expose(request, exposed, std::move(items.records), items.descriptors, items.by_stream);
  if (!shown && !items.by_stream) tcp_->Expose(request, std::move(exposed));
}

Release ShmClientChannel::Withdraw(uint64_t request, std::function<void()> released) {
  if (shared_->exposures->ByStream(request)) {
    const Release by_stream =
        tcp_->Withdraw(request, [shared = shared_, request] { shared->exposures->StreamsReleased(request); });
    if (by_stream == Release::kReleased) shared_->exposures->StreamsReleased(request);
  }
  return shared_->exposures->Withdraw(request, std::move(released));
}

absl::Status ShmClientChannel::RegisterMemory(MemoryRange range) {
  const auto known = regions();
  for (const RegisteredRange& region : *known) {
    if (region.range.base == range.base) return absl::OkStatus();
  }
  auto key = OfferAny(range);
  if (!key.ok()) return key.status();
  std::lock_guard lock(mutex_);
  auto changed = std::make_shared<RegisteredRanges>(*regions_);
  InsertRange({range, *key}, changed.get());
  regions_ = std::move(changed);
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> ShmClientChannel::OfferAny(MemoryRange range) {
  const Backing backing = FindBacking(range);
  std::vector<RegionKind> kinds;
  if (backing.file) {
    // Holes would be filled on the server's account, so it takes none. Best effort.
    const size_t before = Address(range.base) % kPageBytes;
    madvise(range.base - before, range.bytes + before, MADV_POPULATE_WRITE);
    if (backing.cannot_shrink) kinds.push_back(RegionKind::kMapped);
    kinds.push_back(RegionKind::kFile);
  }
  if (reaches_process_) kinds.push_back(RegionKind::kProcess);
  absl::Status status = absl::FailedPreconditionError(why_not_);
  for (const RegionKind kind : kinds) {
    auto key = Offer(range, kind, backing);
    if (key.ok()) return key;
    status = key.status();
  }
  return status;
}

absl::StatusOr<uint32_t> ShmClientChannel::Offer(MemoryRange range, RegionKind kind, const Backing& backing) {
  std::vector<UniqueFd> fds;
  if (kind != RegionKind::kProcess) {
    fds.emplace_back(fcntl(backing.file.get(), F_DUPFD_CLOEXEC, 0));
    if (!fds.back()) return ErrnoStatus(errno, "dup");
  }
  uint32_t key = 0;
  {
    std::lock_guard lock(mutex_);
    uint32_t tries = 0;
    while (tries < kRegionSlots && !shared_->board->region_gate(next_key_).free()) ++tries, ++next_key_;
    if (tries == kRegionSlots) return absl::ResourceExhaustedError(absl::StrCat("at most ", kRegionSlots, " regions"));
    key = next_key_++;
    shared_->board->region_gate(key).Open(key);
  }
  Message message{.type = MessageType::kRegion, .flag = static_cast<uint8_t>(kind), .id = {0, key}};
  message.values = {Address(range.base), range.bytes, kind == RegionKind::kProcess ? 0 : backing.file_offset};
  streams_[0]->loop()->Run([&] { streams_[0]->Send(message, std::move(fds)); });
  std::unique_lock lock(mutex_);
  const auto until = std::chrono::steady_clock::now() + kPatience;
  const auto heard = [&] { return replies_.contains(key) || shared_->broken.load(); };
  // Looked at now and then: what breaks the streams says nothing here.
  while (!replied_.wait_for(lock, kLookForBreak, heard) && std::chrono::steady_clock::now() < until) {
  }
  auto reply = replies_.extract(key);
  lock.unlock();
  const absl::Status status =
      reply.empty() ? absl::UnavailableError("the server does not answer") : std::move(reply.mapped());
  if (status.ok()) return key;
  Retire(key);
  return status;
}

void ShmClientChannel::OnRegionReply(uint32_t key, absl::Status status) {
  std::lock_guard lock(mutex_);
  replies_[key] = std::move(status);
  replied_.notify_all();
}

// Returns when the server does not touch the region any more.
void ShmClientChannel::Retire(uint32_t key) {
  Gate gate = shared_->board->region_gate(key);
  gate.Withdraw();
  while (gate.used() && !shared_->server_gone()) std::this_thread::sleep_for(kLookAgain);
  streams_[0]->loop()->Run([&] { streams_[0]->Send({.type = MessageType::kUnregion, .id = {0, key}}, {}); });
  gate.Free();
}

void ShmClientChannel::UnregisterMemory(MemoryRange range) {
  std::optional<uint32_t> key;
  {
    std::lock_guard lock(mutex_);
    auto changed = std::make_shared<RegisteredRanges>(*regions_);
    for (auto it = changed->begin(); it != changed->end(); ++it) {
      if (it->range.base != range.base) continue;
      key = it->key;
      changed->erase(it);
      break;
    }
    regions_ = std::move(changed);
  }
  if (key.has_value()) Retire(*key);
}

}  // namespace quarry::transport::shm
