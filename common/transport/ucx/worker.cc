#include "common/transport/ucx/worker.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/transport/ucx/lanes.h"

namespace quarry::transport::ucx {
namespace {

// So much or less travels within the message; UCX's rendezvous is slower for as little.
constexpr size_t kMostEager = 128 << 10;

constexpr size_t kKeyPadding = 4 << 10;

void CopyInto(absl::Span<const Segment> segments, const std::byte* from, size_t bytes) {
  SegmentCursor cursor(segments);
  iovec pieces[64];
  while (bytes > 0) {
    size_t covered = 0;
    const size_t count = cursor.Peek(pieces, std::size(pieces), bytes, &covered);
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(pieces[i].iov_base, from, pieces[i].iov_len);
      from += pieces[i].iov_len;
    }
    cursor.Advance(covered);
    bytes -= covered;
  }
}

}  // namespace

// A call of UCX that has not ended, or several with one end.
struct Worker::Operation {
  Worker* worker = nullptr;
  std::string header;                // UCX reads it until the end
  std::vector<ucp_dt_iov_t> pieces;  // so too, where there are several
  size_t bytes = 0;
  Done done;
  std::shared_ptr<Endpoint> endpoint;  // of what is sent
  size_t calls = 1;                    // that have not ended
  ucs_status_t status = UCS_OK;        // of those that have
};

Endpoint::~Endpoint() { worker_->PostClose(state_); }

RemoteKey::~RemoteKey() {
  Worker* const worker = endpoint_->worker_.get();
  if (handle_ == nullptr) return;
  worker->keys_.erase(this);
  worker->api().ucp_rkey_destroy(handle_);
}

absl::StatusOr<std::shared_ptr<Worker>> Worker::Create(std::shared_ptr<Context> context, EventLoop* loop) {
  // Ends on the loop, wherever the last reference goes.
  std::shared_ptr<Worker> worker(new Worker(std::move(context), loop),
                                 [loop](Worker* ended) { loop->Post([ended] { delete ended; }); });
  absl::Status status;
  loop->Run([&] { status = worker->Open(); });
  if (!status.ok()) return status;
  return worker;
}

absl::Status Worker::Open() {
  ucp_worker_params_t params = {};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SINGLE;
  if (const ucs_status_t status = api().ucp_worker_create(context_->handle(), &params, &handle_); status != UCS_OK) {
    handle_ = nullptr;
    return UcxStatus(api(), status, "creating a worker");
  }
  ucp_worker_attr_t attributes = {};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS;
  ucs_status_t status = api().ucp_worker_query(handle_, &attributes);
  if (status != UCS_OK) return UcxStatus(api(), status, "the worker's address");
  address_.assign(reinterpret_cast<const char*>(attributes.address), attributes.address_length);
  api().ucp_worker_release_address(handle_, attributes.address);

  ucp_am_handler_param_t handler = {};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kActiveMessageId;
  handler.cb = OnActiveMessage;
  handler.arg = this;
  if (status = api().ucp_worker_set_am_recv_handler(handle_, &handler); status != UCS_OK) {
    return UcxStatus(api(), status, "the message handler");
  }
  if (status = api().ucp_worker_get_efd(handle_, &fd_); status != UCS_OK) {
    return UcxStatus(api(), status, "the event descriptor");
  }
  loop_->Add(fd_, EPOLLIN, this);
  PostDrive();
  return absl::OkStatus();
}

void Worker::Shutdown() {
  if (fd_ >= 0) loop_->Remove(std::exchange(fd_, -1), this);
  if (handle_ == nullptr) return;
  FinishSending();
  // All of them, because UCX cannot end with what it has on its way on open endpoints.
  for (const auto& state : std::vector(endpoints_.begin(), endpoints_.end())) Close(state);
  const int64_t until = Clock::Real()->NowNs() + kShutdownNs;
  while (!Sending() && !operations_.empty() && Clock::Real()->NowNs() < until) api().ucp_worker_progress(handle_);
  for (RemoteKey* const key : std::exchange(keys_, {})) api().ucp_rkey_destroy(std::exchange(key->handle_, nullptr));
  api().ucp_worker_destroy(std::exchange(handle_, nullptr));
  // What UCX has let go of without a word.
  while (!operations_.empty()) {
    (*operations_.begin())->calls = 1;
    End(*operations_.begin(), UCS_ERR_CANCELED);
  }
  endpoints_.clear();
  lingering_.clear();
}

bool Worker::Sending() const {
  return std::any_of(operations_.begin(), operations_.end(),
                     [](const Operation* operation) { return operation->endpoint != nullptr; });
}

void Worker::FinishSending() {
  const int64_t begin = Clock::Real()->NowNs();
  for (int64_t now = begin, worked = begin; now < begin + kShutdownNs; now = Clock::Real()->NowNs()) {
    if (api().ucp_worker_progress(handle_) != 0) worked = now;
    if (!Sending() && now > worked + kQuietNs) return;
  }
}

void Worker::Linger(std::shared_ptr<Endpoint> endpoint) {
  lingering_.push_back(std::move(endpoint));
  loop_->After(kLingerNs, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self != nullptr && !self->lingering_.empty()) self->lingering_.pop_front();
  });
}

// Looks again and again while there was something a moment ago: the lanes hand over some KiB at a
// time, and whoever sleeps in between is woken for each.
void Worker::Drive() {
  if (handle_ == nullptr) return;
  const int64_t begin = Clock::Real()->NowNs();
  int64_t worked = begin;
  for (int64_t now = begin; now - worked < kSpinNs; now = Clock::Real()->NowNs()) {
    if (now - begin > kTurnNs) return PostDrive();
    for (int i = 0; i < kCallsARound; ++i) {
      if (api().ucp_worker_progress(handle_) != 0) worked = now;
    }
  }
  // Whatever comes from now on makes the descriptor readable. Busy: something has come already.
  if (api().ucp_worker_arm(handle_) != UCS_OK) PostDrive();
}

void Worker::PostDrive() {
  if (std::exchange(drive_posted_, true)) return;
  loop_->Post([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->drive_posted_ = false;
    self->Drive();
  });
}

absl::StatusOr<std::shared_ptr<Endpoint>> Worker::Connect(const std::string& address,
                                                          std::function<void(absl::Status)> on_failed) {
  if (endpoints_.size() >= kMaxEndpoints) {
    return absl::ResourceExhaustedError(absl::StrCat("at most ", kMaxEndpoints, " UCX endpoints a data thread"));
  }
  auto state = std::make_shared<Endpoint::State>();
  state->on_failed = std::move(on_failed);
  ucp_ep_params_t params = {};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = OnFailed;
  params.err_handler.arg = state.get();
  const ucs_status_t status = api().ucp_ep_create(handle_, &params, &state->handle);
  if (status != UCS_OK) return UcxStatus(api(), status, "connecting to the peer's worker");
  endpoints_.insert(state);
  PostDrive();
  return std::shared_ptr<Endpoint>(new Endpoint(shared_from_this(), std::move(state)));
}

void Worker::OnFailed(void* state, ucp_ep_h, ucs_status_t status) {
  auto* endpoint = static_cast<Endpoint::State*>(state);
  const auto on_failed = std::exchange(endpoint->on_failed, nullptr);
  if (on_failed) on_failed(absl::UnavailableError(absl::StrCat("UCX endpoint failed: ", static_cast<int>(status))));
}

// Not at once: what has just ended may have been the last to keep it, and UCX is still at that.
void Worker::PostClose(const std::shared_ptr<Endpoint::State>& state) {
  state->on_failed = nullptr;
  loop_->Post([weak = weak_from_this(), state] {
    if (const auto self = weak.lock(); self != nullptr) self->Close(state);
  });
}

void Worker::Close(const std::shared_ptr<Endpoint::State>& state) {
  if (handle_ == nullptr || std::exchange(state->closing, true)) return;  // Shutdown has seen to it
  Operation* operation = NewOperation({}, [this, state](ucs_status_t) { endpoints_.erase(state); });
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  param.cb.send = OnSent;
  param.user_data = operation;
  Track(operation, api().ucp_ep_close_nbx(state->handle, &param));
}

Worker::Operation* Worker::NewOperation(absl::Span<const Segment> segments, Done done) {
  auto* operation = new Operation{this, {}, {}, 0, std::move(done)};
  operation->bytes = TotalBytes(segments);
  SegmentCursor cursor(segments);
  iovec pieces[64];
  for (size_t left = operation->bytes; left > 0;) {
    size_t covered = 0;
    const size_t count = cursor.Peek(pieces, std::size(pieces), left, &covered);
    for (size_t i = 0; i < count; ++i) operation->pieces.push_back({pieces[i].iov_base, pieces[i].iov_len});
    cursor.Advance(covered);
    left -= covered;
  }
  operations_.insert(operation);
  return operation;
}

void Worker::End(Operation* operation, ucs_status_t status) {
  if (status != UCS_OK) operation->status = status;
  if (--operation->calls > 0) return;
  operations_.erase(operation);
  const std::unique_ptr<Operation> ended(operation);
  ended->done(ended->status);
}

void Worker::Track(Operation* operation, ucs_status_ptr_t request) {
  PostDrive();
  if (!UCS_PTR_IS_PTR(request)) End(operation, UCS_PTR_STATUS(request));
}

void Worker::OnSent(void* request, ucs_status_t status, void* operation) {
  auto* ended = static_cast<Operation*>(operation);
  Worker* const worker = ended->worker;
  worker->api().ucp_request_free(request);
  worker->End(ended, status);
}

void Worker::OnLanded(void* request, ucs_status_t status, size_t, void* operation) {
  OnSent(request, status, operation);
}

// How UCX is told where the bytes of an operation are.
struct Worker::Buffer {
  explicit Buffer(Operation* operation, ucp_request_param_t* param) {
    auto& pieces = operation->pieces;
    param->op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_CALLBACK;
    param->user_data = operation;
    if (pieces.size() > 1) {
      param->datatype = ucp_dt_make_iov();
      address = pieces.data();
      count = pieces.size();
    } else {
      param->datatype = ucp_dt_make_contig(1);
      address = pieces.empty() ? nullptr : pieces[0].buffer;
      count = operation->bytes;
    }
  }
  void* address = nullptr;
  size_t count = 0;
};

void Worker::Send(std::shared_ptr<Endpoint> endpoint, std::string header, absl::Span<const Segment> segments,
                  Done done) {
  if (handle_ == nullptr) return done(UCS_ERR_CANCELED);
  Operation* operation = NewOperation(segments, std::move(done));
  operation->endpoint = std::move(endpoint);
  operation->header = std::move(header);
  ucp_request_param_t param = {};
  const Buffer buffer(operation, &param);
  param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = operation->bytes > kMostEager ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER;
  param.cb.send = OnSent;
  Track(operation,
        api().ucp_am_send_nbx(operation->endpoint->state_->handle, kActiveMessageId, operation->header.data(),
                              operation->header.size(), buffer.address, buffer.count, &param));
}

bool Worker::HasRdmaLane(const Endpoint& endpoint) const {
  char* text = nullptr;
  size_t bytes = 0;
  FILE* const out = open_memstream(&text, &bytes);
  if (out == nullptr) return false;
  api().ucp_ep_print_info(endpoint.state_->handle, out);
  std::fclose(out);
  const bool found = NamesRdmaLane({text, bytes});
  std::free(text);
  return found;
}

absl::StatusOr<std::shared_ptr<RemoteKey>> Worker::Unpack(std::shared_ptr<Endpoint> endpoint,
                                                          absl::string_view packed) {
  if (handle_ == nullptr) return absl::UnavailableError("UCX: the worker has ended");
  // UCX is not told how long it is. Zeros behind it end what would be read beyond it.
  std::string padded(packed);
  padded.resize(packed.size() + kKeyPadding);
  ucp_rkey_h handle = nullptr;
  const ucs_status_t status = api().ucp_ep_rkey_unpack(endpoint->state_->handle, padded.data(), &handle);
  if (status != UCS_OK) return UcxStatus(api(), status, "unpacking a key");
  std::shared_ptr<RemoteKey> key(new RemoteKey(std::move(endpoint), handle));
  keys_.insert(key.get());
  return key;
}

void Worker::Move(Direction direction, std::shared_ptr<Endpoint> endpoint, std::byte* local,
                  absl::Span<const RemoteRun> remote, Done done) {
  if (handle_ == nullptr) return done(UCS_ERR_CANCELED);
  Operation* operation = NewOperation({}, std::move(done));  // one call more than there are: ended last
  operation->endpoint = std::move(endpoint);
  ucp_ep_h const handle = operation->endpoint->state_->handle;
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = OnSent;
  param.user_data = operation;
  const ucp_request_param_t flush = param;
  size_t bytes = 0;
  for (const RemoteRun& run : remote) bytes += run.length * run.count;
  param.memh = context_->MappingOf({local, bytes});
  if (param.memh != nullptr) param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
  for (const RemoteRun& run : remote) {
    for (uint32_t i = 0; i < run.count && operation->status == UCS_OK; ++i) {
      const uint64_t address = run.address + i * run.stride;
      ++operation->calls;
      Track(operation, direction == Direction::kPut
                           ? api().ucp_put_nbx(handle, local, run.length, address, run.key->handle_, &param)
                           : api().ucp_get_nbx(handle, local, run.length, address, run.key->handle_, &param));
      local += run.length;
    }
  }
  ++operation->calls;
  Track(operation, api().ucp_ep_flush_nbx(handle, &flush));
  End(operation, UCS_OK);
}

void Worker::Land(Arrival* arrival, absl::Span<const Segment> segments, Done done) {
  arrival->taken_ = true;
  if (!arrival->rendezvous_) {
    CopyInto(segments, static_cast<const std::byte*>(arrival->data_), arrival->bytes_);
    return done(UCS_OK);
  }
  Operation* operation = NewOperation(segments, std::move(done));
  ucp_request_param_t param = {};
  const Buffer buffer(operation, &param);
  param.cb.recv_am = OnLanded;
  Track(operation, api().ucp_am_recv_data_nbx(handle_, arrival->data_, buffer.address, buffer.count, &param));
}

ucs_status_t Worker::OnActiveMessage(void* self, const void* header, size_t header_bytes, void* data, size_t bytes,
                                     const ucp_am_recv_param_t* param) {
  auto* worker = static_cast<Worker*>(self);
  Message message;
  absl::Span<const std::byte> meta;
  const absl::Span<const std::byte> in(static_cast<const std::byte*>(header), header_bytes);
  const absl::Status decoded = DecodeMessage(in, &message, &meta);
  const auto found = worker->sinks_.find(message.token);
  // A stranger's, or late: nobody here has anything to do with it.
  if (found == worker->sinks_.end()) return UCS_OK;
  if (!decoded.ok()) {
    found->second->OnMalformed(decoded);
    return UCS_OK;
  }
  Arrival arrival;
  arrival.data_ = data;
  arrival.bytes_ = bytes;
  arrival.rendezvous_ = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  found->second->OnMessage(message, meta, &arrival);
  return arrival.taken_ && arrival.rendezvous_ ? UCS_INPROGRESS : UCS_OK;
}

}  // namespace quarry::transport::ucx
