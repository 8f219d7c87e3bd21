#include "tools/bench/data_client.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "tools/bench/block_content.h"

namespace quarry::bench {
namespace {

constexpr uint64_t kFullCheckInterval = 16;  // calls between two blocks that are checked in full there
constexpr uint32_t kMatchLeaseMs = 30'000;
constexpr uint64_t kPutIds = uint64_t{1} << 48;  // ids of puts begin here, beyond those of the working set

uint64_t DifferingBytes(const SegmentList& a, const SegmentList& b) {
  uint64_t wrong = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(a[i].base, b[i].base, a[i].length) == 0) continue;
    for (size_t k = 0; k < a[i].length; ++k) wrong += a[i].base[k] != b[i].base[k];
  }
  return wrong;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DataClient>> DataClient::Create(const TransferOptions& options,
                                                               const std::string& server, uint32_t number,
                                                               uint64_t blocks) {
  std::unique_ptr<DataClient> created(new DataClient(options, number, blocks));
  if (absl::Status status = created->Init(server); !status.ok()) return status;
  return created;
}

absl::Status DataClient::Init(const std::string& server) {
  const bool put = options_.op == TransferOp::kPut;
  auto pool =
      BufferPool::Create(options_.arena_bytes / options_.clients, options_.segment_bytes, number_, options_.buffers);
  if (!pool.ok()) return pool.status();
  pool_ = *std::move(pool);
  auto client = Connect(options_, server);
  if (!client.ok()) return client.status();
  client_ = *std::move(client);
  auto ns = OpenBenchNamespace(client_.get(), options_.block_bytes, kTokensPerBlock);
  if (!ns.ok()) return ns.status();
  ns_ = *std::move(ns);
  auto region = client_->RegisterMemory(pool_->base(), pool_->bytes());
  if (!region.ok()) return region.status();
  region_ = *std::move(region);
  if (put) {
    // The sources: random content that never changes.
    if (absl::Status status = pool_->Fill(number_); !status.ok()) return status;
    auto read_back = BufferPool::Create(options_.batch * options_.block_bytes, options_.segment_bytes, number_);
    if (!read_back.ok()) return read_back.status();
    read_back_ = *std::move(read_back);
    auto read_back_region = client_->RegisterMemory(read_back_->base(), read_back_->bytes());
    if (!read_back_region.ok()) return read_back_region.status();
    read_back_region_ = *std::move(read_back_region);
  }
  queue_ = std::make_unique<CompletionQueue>();
  calls_.resize(options_.inflight);
  // Distinct in every run, so that a server that is kept does not have them already.
  next_put_ = kPutIds + Mix(static_cast<uint64_t>(Clock::Real()->NowNs()) ^ number_) % kPutIds;
  return absl::OkStatus();
}

Slice DataClient::Run(int64_t start_ns, int64_t end_ns) {
  Slice slice;
  size_t under_way = 0;
  std::vector<Call*> idle;
  for (Call& call : calls_) idle.push_back(&call);
  int64_t last_ns = start_ns;
  while (true) {
    while (!idle.empty() && MayBegin(under_way == 0, &slice)) {
      under_way += Begin(idle.back(), &slice);
      idle.pop_back();
    }
    if (under_way == 0) break;
    Call& call = calls_[WaitForOne(&slice)];
    last_ns = Clock::Real()->NowNs();
    --under_way;
    if (last_ns >= end_ns || slice.errors >= kMaxErrors) {  // what ends now is kept for the full check
      idle.clear();
      continue;
    }
    ReturnBuffers(&call);
    idle.push_back(&call);
  }
  slice.elapsed_ns = last_ns - start_ns;
  return slice;
}

bool DataClient::MayBegin(bool wait, Slice* slice) {
  if (chains_.may_put == nullptr || options_.op != TransferOp::kPut) return true;
  const bool may = chains_.may_put(wait);
  if (!may && wait) slice->AddError("the server's metrics could not be read");
  return may;
}

void DataClient::Check(Slice* slice) {
  for (Call& call : calls_) {
    if (call.ok) options_.op == TransferOp::kPut ? ReadBack(call, slice) : CheckAll(call, slice);
    ReturnBuffers(&call);
  }
}

bool DataClient::Begin(Call* call, Slice* slice) {
  ChooseBlocks(call);
  for (size_t i = 0; i < call->ids.size(); ++i) {
    call->buffers.push_back(pool_->Take(options_.block_bytes));
    if (call->buffers.back().empty()) {
      slice->AddError("the clients' arena is too small for the calls under way");
      return false;
    }
  }
  call->begin_ns = Clock::Real()->NowNs();
  const absl::Status status = Submit(call);
  if (!status.ok()) slice->AddError(std::string(status.message()));
  return status.ok();
}

void DataClient::ChooseBlocks(Call* call) {
  call->ok = false;
  call->ids.clear();
  call->hashes.clear();
  if (chains_.next_run != nullptr && options_.op != TransferOp::kPut) {
    const uint64_t first = chains_.next_run();
    for (uint64_t id = first; id < first + options_.batch; ++id) {
      call->ids.push_back(id);
      AppendHash(id, 0, &call->hashes);
    }
  }
  while (call->ids.size() < options_.batch) {
    uint64_t id = next_put_;
    if (options_.op == TransferOp::kPut) {
      ++next_put_;
    } else {
      random_ = Mix(random_);
      id = random_ % blocks_;
      // A chain names a block once.
      if (std::find(call->ids.begin(), call->ids.end(), id) != call->ids.end()) continue;
    }
    call->ids.push_back(id);
    AppendHash(id, 0, &call->hashes);
  }
}

std::vector<Item> DataClient::Items(const Call& call) const {
  std::vector<Item> items(call.ids.size());
  for (size_t i = 0; i < items.size(); ++i) {
    items[i].hash = absl::string_view(call.hashes).substr(i * kHashBytes, kHashBytes);
    items[i].segments = call.buffers[i];
    if (chains_.may_put == nullptr || options_.op != TransferOp::kPut) continue;
    items[i].depth = i;
    if (i > 0) items[i].parent = items[i - 1].hash;
  }
  return items;
}

absl::Status DataClient::Submit(Call* call) {
  const uint64_t index = static_cast<uint64_t>(call - calls_.data());
  switch (options_.op) {
    case TransferOp::kPut:
      return client_->PutAsync(ns_, Items(*call), PutOptions{}, queue_.get(), index).status();
    case TransferOp::kGet:
      if (chains_.next_run != nullptr) {
        if (absl::Status status = LeaseRun(call); !status.ok()) return status;
      }
      return client_->GetAsync(ns_, Items(*call), {.lease = call->lease}, queue_.get(), index).status();
    case TransferOp::kFetch:
    case TransferOp::kMatch:
      break;
  }
  FetchOptions fetch;
  fetch.match.lease_ms = 0;
  const Chain chain = {.hashes = HashSpan(call->hashes, kHashBytes)};
  return client_->FetchPrefixAsync(ns_, {&chain, 1}, {call->buffers}, fetch, queue_.get(), index).status();
}

// As an engine does: what is there, and that it stays until it is loaded.
absl::Status DataClient::LeaseRun(Call* call) {
  const Chain chain = {.hashes = HashSpan(call->hashes, kHashBytes)};
  auto match = client_->Match(ns_, {&chain, 1}, {.lease_ms = kMatchLeaseMs});
  if (!match.ok()) return match.status();
  if (match->usable_tokens != call->ids.size() * kTokensPerBlock) {
    return absl::NotFoundError(absl::StrCat("a block is missing: ", Name(match->first_miss)));
  }
  call->lease = match->lease;
  return absl::OkStatus();
}

size_t DataClient::WaitForOne(Slice* slice) {
  for (;;) {
    std::optional<Completion> completion = queue_->Next();
    if (!completion.has_value() || completion->kind == Completion::Kind::kItem) continue;
    Call& call = calls_[completion->user_data];
    if (completion->kind == Completion::Kind::kDone) Account(*completion, &call, slice);
    if (completion->kind == Completion::Kind::kReleased || !completion->held) return completion->user_data;
  }
}

void DataClient::Account(const Completion& completion, Call* call, Slice* slice) {
  if (const Lease lease = std::exchange(call->lease, Lease()); lease) {
    if (absl::Status status = client_->ReleaseLease(lease); !status.ok())
      slice->AddError(std::string(status.message()));
  }
  if (!completion.status.ok()) {
    slice->AddError(std::string(completion.status.message()));
    return;
  }
  const TransferResult* result = completion.transfer.get();
  if (options_.op == TransferOp::kFetch) result = completion.fetch == nullptr ? nullptr : &completion.fetch->transfer;
  if (result == nullptr || result->items.size() != call->ids.size()) {
    slice->AddError("a call ended without its result");
    return;
  }
  const uint64_t errors_before = slice->errors;
  for (const ItemResult& item : result->items) {
    if (!item.status.ok()) {
      slice->AddError(std::string(item.status.message()));
    } else if (item.miss != MissCause::kNone) {
      slice->AddError(absl::StrCat("a block is missing: ", Name(item.miss)));
    } else if (options_.op == TransferOp::kPut && item.outcome != PutOutcome::kStored) {
      slice->AddError(absl::StrCat("a block was not stored: ", Name(item.refusal)));
    }
  }
  if (slice->errors != errors_before) return;
  call->ok = true;
  slice->bytes += call->ids.size() * options_.block_bytes;
  ++slice->ops;
  slice->latencies.Add(Clock::Real()->NowNs() - call->begin_ns);
  if (options_.op != TransferOp::kPut) CheckSome(*call, slice);
}

void DataClient::CheckSome(const Call& call, Slice* slice) {
  ++ended_calls_;
  // A GPU's would have to be copied, which takes the time that is measured.
  const size_t sampled = options_.buffers == Buffers::kCuda ? 0 : call.ids.size();
  for (size_t i = 0; i < sampled; ++i) {
    slice->wrong_bytes += WrongBytesSampled(call.ids[i], call.buffers[i], ended_calls_ * 64 + i, kSampledWords);
  }
  if (ended_calls_ % kFullCheckInterval != 0) return;
  const size_t chosen = (ended_calls_ / kFullCheckInterval) % call.ids.size();
  CheckBlock(call, chosen, slice);
}

void DataClient::CheckBlock(const Call& call, size_t i, Slice* slice) {
  const auto readable = pool_->Readable(call.buffers[i]);
  if (!readable.ok()) return slice->AddError(std::string(readable.status().message()));
  slice->wrong_bytes += WrongBytes(call.ids[i], *readable);
}

void DataClient::CheckAll(const Call& call, Slice* slice) {
  for (size_t i = 0; i < call.ids.size(); ++i) CheckBlock(call, i, slice);
}

void DataClient::ReadBack(const Call& call, Slice* slice) {
  std::vector<Item> items = Items(call);
  std::vector<SegmentList> destinations;
  for (Item& item : items) {
    item.segments = read_back_->Take(options_.block_bytes);
    destinations.push_back(item.segments);
    PoisonBlock(item.segments);
  }
  auto result = client_->Get(ns_, std::move(items));
  if (!result.ok()) {
    slice->AddError(std::string(result.status().message()));
  } else {
    for (size_t i = 0; i < destinations.size(); ++i) {
      const ItemResult& item = result->items[i];
      if (!item.status.ok()) slice->AddError(std::string(item.status.message()));
      // Gone already is no error: others put as well, and the server keeps what it has room for.
      if (!item.status.ok() || item.miss != MissCause::kNone) continue;
      const auto source = pool_->Readable(call.buffers[i]);
      if (!source.ok()) slice->AddError(std::string(source.status().message()));
      if (source.ok()) slice->wrong_bytes += DifferingBytes(*source, destinations[i]);
    }
  }
  for (const SegmentList& segments : destinations) read_back_->Return(segments);
}

void DataClient::ReturnBuffers(Call* call) {
  for (const SegmentList& segments : call->buffers) pool_->Return(segments);
  call->buffers.clear();
  call->ok = false;
}

Slice RunClients(const std::vector<std::unique_ptr<DataClient>>& clients, int64_t duration_ns) {
  std::vector<Slice> slices(clients.size());
  const int64_t start = Clock::Real()->NowNs();
  InParallel(clients.size(), [&](size_t i) { slices[i] = clients[i]->Run(start, start + duration_ns); });
  // After the last has ended, so that no check takes time from what is measured.
  InParallel(clients.size(), [&](size_t i) { clients[i]->Check(&slices[i]); });
  Slice all;
  for (const Slice& slice : slices) all.Merge(slice);
  return all;
}

}  // namespace quarry::bench
