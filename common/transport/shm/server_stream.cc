#include "common/transport/shm/server_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/random.h"

namespace quarry::transport::shm {

ServerStream::ServerStream(UniqueFd fd, EventLoop* loop, std::shared_ptr<ServerShared> shared, bool first)
    : TransferInbox(loop), shared_(std::move(shared)), first_(first), stream_(std::move(fd), loop, this) {}

void ServerStream::Open() {
  if (first_) {
    nonce_ = SecureRandomBytes(kNonceBytes);
    stream_.Send({.type = MessageType::kChallenge, .body = nonce_});
  }
  stream_.Open();
}

void ServerStream::TakeInbox() {
  for (auto& transfer : TakeStarted()) queue_.push_back(std::move(transfer));
}

void ServerStream::Work() {
  if (!stream_.open()) return;
  WarmNewRegions();
  TakeInbox();
  for (size_t budget = kBudgetBytes; budget > 0;) {
    if (active_ != nullptr) {
      MoveOn(&budget);
    } else if (!BeginNext()) {
      break;
    }
    if (!stream_.open()) return;
  }
  stream_.Flush();
  if (!stream_.open()) return;
  const bool more = active_ != nullptr || !queue_.empty();
  if ((more && stream_.unsent_bytes() <= kMaxUnsentBytes) || !new_regions_.empty()) PostWork();
}

bool ServerStream::BeginNext() {
  if (stream_.unsent_bytes() > kMaxUnsentBytes || queue_.empty()) return false;
  std::unique_ptr<Transfer> transfer = std::move(queue_.front());
  queue_.pop_front();
  Begin(std::move(transfer));
  return true;
}

void ServerStream::Begin(std::unique_ptr<Transfer> transfer) {
  if (IsLate(*transfer)) return Finish(std::move(transfer), TransferStatus::kCancelled);
  if (shared_->board == nullptr) return Finish(std::move(transfer), TransferStatus::kCancelled);
  const bool write = transfer->kind == Transfer::Kind::kWrite;
  active_ = std::move(transfer);
  told_ = 0;
  copy_ = std::make_unique<ItemCopy>(shared_->board.get(), &shared_->regions);
  const ItemCopy::Found found = copy_->Open(*active_);
  if (found == ItemCopy::Found::kByStream) {
    CloseCopy(active_->id.request);
    HandedOn(*active_);
    shared_->by_stream->Start(std::move(active_));
    return;
  }
  active_->carrier = Carrier::kShm;
  if (found == ItemCopy::Found::kMalformed) return Break(copy_->status());
  if (!active_->Prepare()) {
    CloseCopy(active_->id.request);
    return Finish(std::move(active_), TransferStatus::kChecksum);
  }
  switch (found) {
    case ItemCopy::Found::kHere:
      if (!write && copy_->checksum() && !AskForSum()) {  // twice at once: answers could not be told apart
        CloseCopy(active_->id.request);
        Finish(std::move(active_), TransferStatus::kCancelled);
      }
      return;
    case ItemCopy::Found::kWrongSize:
      CloseCopy(active_->id.request);
      // The client is told what it could see for itself over a wire.
      if (write) stream_.Send({.type = MessageType::kWrongSize, .id = active_->id});
      return Finish(std::move(active_), write ? TransferStatus::kOk : TransferStatus::kWrongSize);
    default:
      return EndActive(ItemCopy::Progress::kTakenBack);
  }
}

// Of the active read. Who reads first does not matter: a source that changes in between has other
// sums than the copy. False: it has been asked for already.
bool ServerStream::AskForSum() {
  if (!asked_.try_emplace(active_->id).second) return false;
  stream_.Send({.type = MessageType::kSum, .id = active_->id});
  stream_.Flush();  // now, so that the client sums while this end copies
  return true;
}

void ServerStream::MoveOn(size_t* budget) {
  const size_t before = copy_->moved();
  // A client with more to come is at other items, or will be.
  const bool verified_at_once = active_->kind == Transfer::Kind::kWrite && copy_->checksum() && queue_.empty();
  const bool last = verified_at_once && active_->bytes - before <= kStepBytes;
  const ItemCopy::Progress progress = copy_->Step(std::min(*budget, last ? kLastStepBytes : kStepBytes));
  *budget -= std::min(*budget, std::max<size_t>(copy_->moved() - before, 1));
  if (progress != ItemCopy::Progress::kMore) return EndActive(progress);
  if (verified_at_once) SendWriting();
}

// The client verifies the item behind the copy, and hears of it often enough that little is left
// to verify at the end.
void ServerStream::SendWriting() {
  const size_t left = active_->bytes - copy_->moved();
  if (copy_->moved() - told_ < std::min(left, kStepBytes)) return;
  told_ = copy_->moved();
  SendWritten(MessageType::kWriting, *active_, /*with_sums=*/true);
  stream_.Flush();
}

void ServerStream::EndActive(ItemCopy::Progress progress) {
  if (progress == ItemCopy::Progress::kBroken) return Break(copy_->status());
  const ItemId id = active_->id;
  const bool checksum = copy_->checksum();
  CloseCopy(id.request);
  const auto asked = active_->kind == Transfer::Kind::kRead ? asked_.find(id) : asked_.end();
  if (progress != ItemCopy::Progress::kDone) {
    // What has been copied and waits for its answer is another transfer of the same item.
    if (asked != asked_.end() && asked->second.copied == nullptr) asked_.erase(asked);
    return Finish(std::move(active_), TransferStatus::kCancelled);
  }
  if (asked != asked_.end()) {
    asked->second.copied = std::move(active_);
    if (asked->second.answer != Asked::Answer::kNone) EndAsked(std::move(asked_.extract(asked).mapped()));
  } else if (active_->kind == Transfer::Kind::kRead) {
    EndRead(std::move(active_), 0);
  } else {
    SendWritten(MessageType::kWritten, *active_, checksum);
    // The client first, if it waits: to finish wakes others.
    if (queue_.empty()) stream_.Flush();
    if (active_ == nullptr) return;  // the stream broke
    Finish(std::move(active_), TransferStatus::kOk);
  }
}

void ServerStream::EndRead(std::unique_ptr<Transfer> transfer, uint64_t root) {
  transfer->root = root;
  stream_.Send({.type = MessageType::kRead, .id = transfer->id});
  Finish(std::move(transfer), TransferStatus::kOk);
}

void ServerStream::EndAsked(Asked asked) {
  if (asked.answer == Asked::Answer::kSummed) return EndRead(std::move(asked.copied), asked.root);
  Finish(std::move(asked.copied), TransferStatus::kCancelled);
}

void ServerStream::CloseCopy(uint64_t request) {
  if (copy_->Close()) stream_.Send({.type = MessageType::kReleased, .id = {request, 0}});
}

void ServerStream::SendWritten(MessageType type, const Transfer& transfer, bool with_sums) {
  tcp::ItemMeta meta = tcp::MetaOf(transfer);
  if (!with_sums) meta.sums = {};
  meta_.clear();
  tcp::EncodeMeta(meta, &meta_);
  stream_.Send({.type = type, .id = transfer.id, .values = {told_, 0, 0}, .body = meta_});
}

void ServerStream::Cancel(uint64_t request) {
  TakeInbox();
  if (active_ != nullptr && active_->id.request == request) EndActive(ItemCopy::Progress::kTakenBack);
  std::vector<std::unique_ptr<Transfer>> ended;
  for (auto& transfer : queue_) {
    if (transfer->id.request == request) ended.push_back(std::move(transfer));
  }
  std::erase(queue_, nullptr);
  for (auto it = asked_.begin(); it != asked_.end();) {
    const auto next = std::next(it);
    if (it->first.request == request) ended.push_back(std::move(asked_.extract(it).mapped().copied));
    it = next;
  }
  for (auto& transfer : ended) Finish(std::move(transfer), TransferStatus::kCancelled);
  // What this stream has handed over is there already.
  shared_->by_stream->Cancel(request);
  Work();
}

void ServerStream::Close() {
  // What the client waits to hear goes out first.
  if (copy_ != nullptr && active_ != nullptr) CloseCopy(active_->id.request);
  stream_.Flush();
  stream_.Close();
  FinishAll(TransferStatus::kClosed);
}

void ServerStream::Break(const absl::Status& status) {
  Close();
  shared_->on_closed(status);
}

void ServerStream::OnStreamBroken(const absl::Status& status) {
  if (copy_ != nullptr) copy_->Close();
  FinishAll(TransferStatus::kClosed);
  shared_->on_closed(status);
}

void ServerStream::FinishAll(TransferStatus status) {
  std::vector<std::unique_ptr<Transfer>> ended = CloseInbox();
  if (active_ != nullptr) ended.push_back(std::move(active_));
  for (auto& transfer : queue_) ended.push_back(std::move(transfer));
  queue_.clear();
  for (auto& [id, asked] : asked_) {
    if (asked.copied != nullptr) ended.push_back(std::move(asked.copied));
  }
  asked_.clear();
  new_regions_.clear();
  for (auto& transfer : ended) Finish(std::move(transfer), status);
}

absl::Status ServerStream::OnMessage(const Message& message, std::deque<UniqueFd>* fds) {
  switch (message.type) {
    case MessageType::kBoard:
      return OnBoard(message, fds);
    case MessageType::kRegion:
      return OnRegion(message, fds);
    case MessageType::kUnregion:
      shared_->regions.Remove(message.id.item);
      return absl::OkStatus();
    case MessageType::kSummed:
      OnAnswer(message.id, Asked::Answer::kSummed, message.values[0]);
      return absl::OkStatus();
    case MessageType::kAbsent:
      OnAnswer(message.id, Asked::Answer::kAbsent, 0);
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("message type: a client sent ", static_cast<uint32_t>(message.type)));
  }
}

absl::Status ServerStream::OnBoard(const Message& message, std::deque<UniqueFd>* fds) {
  if (!first_ || shared_->board != nullptr) return absl::InvalidArgumentError("a second board");
  if (fds->size() != 2) return absl::InvalidArgumentError("a board comes with two descriptors");
  UniqueFd gates = std::move((*fds)[0]);
  UniqueFd items = std::move((*fds)[1]);
  fds->clear();
  auto board = ServerBoard::Create(std::move(gates), std::move(items));
  if (!board.ok()) return board.status();
  shared_->board = *std::move(board);
  const absl::Status probe = shared_->peer.Probe(message.values[0], nonce_);
  shared_->reaches_process = probe.ok();
  shared_->ready.store(true, std::memory_order_release);
  stream_.Send({.type = MessageType::kReady, .flag = probe.ok(), .body = absl::string_view(probe.message())});
  return absl::OkStatus();
}

absl::Status ServerStream::OnRegion(const Message& message, std::deque<UniqueFd>* fds) {
  RegionClaim claim;
  claim.kind = static_cast<RegionKind>(message.flag);
  claim.key = message.id.item;
  claim.base = message.values[0];
  claim.bytes = message.values[1];
  claim.file_offset = message.values[2];
  UniqueFd file;
  if (claim.kind != RegionKind::kProcess) {
    if (fds->empty()) return absl::InvalidArgumentError("a region of a file comes with a descriptor");
    file = std::move(fds->front());
    fds->pop_front();
  }
  if (shared_->board == nullptr) return absl::InvalidArgumentError("a region before the board");
  if (new_regions_.size() >= kMaxNewRegions) {
    return absl::InvalidArgumentError(absl::StrCat("more than ", kMaxNewRegions, " regions wait for their answers"));
  }
  auto region = MakeRegion(claim, std::move(file));
  if (region.ok()) {
    new_regions_.push_back(*std::move(region));  // answered when it is warm
  } else {
    ReplyToRegion(claim.key, region.status());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Region>> ServerStream::MakeRegion(const RegionClaim& claim, UniqueFd file) {
  if (claim.kind == RegionKind::kProcess && !shared_->reaches_process) {
    return absl::PermissionDeniedError("the client's memory cannot be reached");
  }
  auto region = Region::Create(claim, std::move(file), &shared_->peer);
  if (!region.ok()) return region.status();
  if (absl::Status status = shared_->regions.Admit(claim.bytes); !status.ok()) return status;
  return region;
}

// A part at a time: mapping a large region takes a while.
void ServerStream::WarmNewRegions() {
  if (new_regions_.empty() || new_regions_.front()->Warm(kWarmBytes)) return;
  const std::shared_ptr<Region> region = std::move(new_regions_.front());
  new_regions_.pop_front();
  const absl::Status status = shared_->regions.Add(region);
  if (!status.ok()) shared_->regions.Dismiss(region->bytes());
  ReplyToRegion(region->key(), status);
}

void ServerStream::ReplyToRegion(uint32_t key, const absl::Status& status) {
  stream_.Send({.type = MessageType::kRegionReply,
                .flag = status.ok(),
                .id = {0, key},
                .body = absl::string_view(status.message())});
}

void ServerStream::OnAnswer(ItemId id, Asked::Answer answer, uint64_t root) {
  const auto asked = asked_.find(id);
  if (asked == asked_.end()) return;  // cancelled meanwhile
  asked->second.answer = answer;
  asked->second.root = root;
  if (asked->second.copied != nullptr) EndAsked(std::move(asked_.extract(asked).mapped()));
}

}  // namespace quarry::transport::shm
