#include "server/grpc/watch_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/grpc/request_target.h"
#include "server/grpc/status.h"

namespace quarry::server {

using v1::WatchEvent;

WatchStream::WatchStream(CacheService* service, Quota* streams, const v1::WatchRequest& request)
    : service_(service), log_(service->store().events()), streams_(streams) {
  service_->metrics().requests[static_cast<size_t>(Op::kWatch)].fetch_add(1, std::memory_order_relaxed);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (absl::Status status = Begin(request); !status.ok()) {
      service_->metrics().Failed(Op::kWatch);
      EndLocked(status);
      return;
    }
    // Known to be listening before the first event, even if that is long in coming.
    StartSendInitialMetadata();
  }
  log_.Add(this);
  Continue();
}

absl::Status WatchStream::Begin(const v1::WatchRequest& request) {
  if (absl::Status status = service_->CheckNotDraining(); !status.ok()) return status;
  admitted_ = streams_->Take(1);
  if (!admitted_) return absl::ResourceExhaustedError(absl::StrCat("watches: at most ", streams_->most()));
  tenant_ = std::string(TenantOr(request.tenant()));
  namespace_ = request.namespace_();
  if (!namespace_.empty()) {
    if (auto ns = service_->FindNamespace(tenant_, namespace_); !ns.ok()) return ns.status();
  }
  if (request.snapshot() && !request.resume_epoch().empty()) {
    return absl::InvalidArgumentError("snapshot: either this or resume_epoch");
  }
  seen_ = log_.last();
  if (request.snapshot()) {
    for (const Namespace* ns : service_->namespaces().List()) {
      if (Wants(*ns)) snapshot_.push_back(ns);
    }
    snapshot_end_due_ = true;
  } else if (!request.resume_epoch().empty()) {
    const bool same_epoch = request.resume_epoch() == log_.epoch();
    if (same_epoch && request.resume_after() > seen_) {
      return absl::InvalidArgumentError(
          absl::StrCat("resume_after: ", request.resume_after(), ", but the newest event is ", seen_));
    }
    if (same_epoch) seen_ = request.resume_after();
    gap_due_ = !same_epoch;
  }
  return absl::OkStatus();
}

bool WatchStream::Wants(const Namespace& ns) const {
  return ns.tenant == tenant_ && (namespace_.empty() || ns.name == namespace_);
}

void WatchStream::Continue() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (writing_ || finished_) return;
  if (cancelled_) return EndLocked(absl::CancelledError("by the client"));
  message_.Clear();
  if (gap_due_) {
    AddGap(0);
    gap_due_ = false;
  }
  if (message_.events().empty()) FillFromSnapshot();
  if (message_.events().empty()) FillFromLog();
  if (message_.events().empty()) return;
  message_.set_epoch(log_.epoch());
  writing_ = true;
  StartWrite(&message_);
}

void WatchStream::FillFromSnapshot() {
  while (!snapshot_.empty() && message_.events().empty()) {
    const Namespace& ns = *snapshot_.front();
    const BlockPage page = service_->store().List(ns, snapshot_cursor_, kMaxEvents);
    for (const BlockInfo& block : page.blocks) {
      if (block.state != BlockState::kDram && block.state != BlockState::kSsd) continue;
      BlockEvent event;
      event.tier = block.state;
      event.group = static_cast<uint8_t>(block.group);
      event.depth = block.depth;
      event.bytes = block.bytes;
      event.SetHash(block.hash);
      AddEvent(event, ns);
    }
    snapshot_cursor_ = page.next;
    if (page.next == BlockStore::kEndOfIndex) {
      snapshot_.pop_front();
      snapshot_cursor_ = 0;
    }
  }
  if (snapshot_.empty() && message_.events().empty() && std::exchange(snapshot_end_due_, false)) {
    message_.add_events()->set_kind(WatchEvent::KIND_SNAPSHOT_END);
  }
}

void WatchStream::FillFromLog() {
  do {
    const uint64_t lost = log_.Read(seen_, kMaxEvents, &events_);
    seen_ += lost;
    if (lost != 0) AddGap(lost);
    for (const BlockEvent& event : events_) {
      seen_ = event.number;
      const Namespace* ns = service_->namespaces().OfIndex(event.ns);
      if (ns != nullptr && Wants(*ns)) AddEvent(event, *ns);
    }
  } while (message_.events().empty() && !events_.empty());  // all of other namespaces
}

void WatchStream::AddGap(uint64_t lost) {
  WatchEvent* gap = message_.add_events();
  gap->set_kind(WatchEvent::KIND_GAP);
  gap->set_number(seen_);
  gap->set_lost(lost);
}

void WatchStream::AddEvent(const BlockEvent& event, const Namespace& ns) {
  WatchEvent* out = message_.add_events();
  out->set_number(event.number);
  out->set_namespace_(ns.name);
  switch (event.kind) {
    case BlockEvent::Kind::kCleared:
      out->set_kind(WatchEvent::KIND_CLEARED);
      return;
    case BlockEvent::Kind::kStored:
      out->set_kind(WatchEvent::KIND_STORED);
      out->set_parent(event.parent().data(), event.parent().size());
      out->set_depth(event.depth);
      out->set_tier(static_cast<v1::BlockState>(event.tier));
      break;
    case BlockEvent::Kind::kRemoved:
      out->set_kind(WatchEvent::KIND_REMOVED);
      out->set_cause(static_cast<v1::MissCause>(event.cause));
      break;
  }
  out->set_group(event.group);
  out->set_hash(event.hash().data(), event.hash().size());
  out->set_bytes(event.bytes);
}

void WatchStream::OnEvents() { Continue(); }

void WatchStream::OnWriteDone(bool ok) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    writing_ = false;
    cancelled_ = cancelled_ || !ok;
  }
  Continue();
}

void WatchStream::OnCancel() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    cancelled_ = true;
  }
  Continue();  // unless a write is under way: OnWriteDone follows
}

void WatchStream::EndLocked(const absl::Status& status) {
  if (!std::exchange(finished_, true)) Finish(ToGrpc(status));
}

void WatchStream::OnDone() {
  log_.Remove(this);
  if (admitted_) streams_->Give(1);
  delete this;
}

}  // namespace quarry::server
