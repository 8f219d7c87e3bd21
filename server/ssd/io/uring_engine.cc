#include "server/ssd/io/uring_engine.h"

#include <liburing.h>

#include <cerrno>
#include <utility>

#include "server/ssd/io/kernel_engine.h"

namespace quarry::server {
namespace {

void Prepare(const IoRequest& request, io_uring_sqe* sqe) {
  const auto parts = static_cast<unsigned>(request.parts.size());
  switch (request.kind) {
    case IoRequest::Kind::kRead:
      return io_uring_prep_readv(sqe, request.fd, request.parts.data(), parts, request.offset);
    case IoRequest::Kind::kWrite:
      return io_uring_prep_writev(sqe, request.fd, request.parts.data(), parts, request.offset);
    case IoRequest::Kind::kSync:
      return io_uring_prep_fsync(sqe, request.fd, IORING_FSYNC_DATASYNC);
  }
}

// An entry that asks for nothing, and whose completion nobody waits for.
void PrepareNothing(io_uring_sqe* sqe) {
  io_uring_prep_nop(sqe);
  io_uring_sqe_set_data(sqe, nullptr);
}

class UringQueue final : public KernelQueue {
 public:
  UringQueue() = default;
  ~UringQueue() override {
    if (ready_) io_uring_queue_exit(&ring_);
  }

  absl::Status Init(uint32_t depth, int event_fd);
  int Start(KernelOp* op) override;
  size_t Collect(absl::Span<EndedOp> ended) override;

 private:
  bool HasOperations();
  // Proves that requests go in and come out: sandboxes may allow one call and not the other.
  int TryOut();
  // Hands the entries to the kernel: 0 when it has taken all of them.
  int Flush();

  io_uring ring_ = {};
  bool ready_ = false;
};

absl::Status UringQueue::Init(uint32_t depth, int event_fd) {
  // The completion ring has twice as many entries, so it holds what is in flight.
  if (const int error = io_uring_queue_init(depth, &ring_, 0); error < 0) return EngineUnavailable(-error);
  ready_ = true;
  if (!HasOperations()) return absl::UnavailableError("this kernel's io_uring lacks readv, writev or fsync");
  if (const int error = TryOut(); error < 0) return EngineUnavailable(-error);
  if (const int error = io_uring_register_eventfd(&ring_, event_fd); error < 0) return EngineUnavailable(-error);
  return absl::OkStatus();
}

bool UringQueue::HasOperations() {
  io_uring_probe* const probe = io_uring_get_probe_ring(&ring_);
  if (probe == nullptr) return false;
  bool all = true;
  for (const int operation : {IORING_OP_NOP, IORING_OP_READV, IORING_OP_WRITEV, IORING_OP_FSYNC}) {
    all = all && io_uring_opcode_supported(probe, operation) != 0;
  }
  io_uring_free_probe(probe);
  return all;
}

int UringQueue::TryOut() {
  PrepareNothing(io_uring_get_sqe(&ring_));
  if (const int error = Flush(); error < 0) return error;
  io_uring_cqe* cqe = nullptr;
  int error;
  do {
    error = io_uring_wait_cqe(&ring_, &cqe);
  } while (error == -EINTR);
  if (error < 0) return error;
  error = cqe->res;
  io_uring_cqe_seen(&ring_, cqe);
  return error;
}

int UringQueue::Flush() {
  while (io_uring_sq_ready(&ring_) > 0) {
    const int taken = io_uring_submit(&ring_);
    if (taken == -EINTR) continue;
    if (taken < 0) return taken;
    if (taken == 0) return -EAGAIN;
  }
  return 0;
}

int UringQueue::Start(KernelOp* op) {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  if (sqe == nullptr) {  // full of entries from below
    if (const int error = Flush(); error < 0) return error;
    sqe = io_uring_get_sqe(&ring_);
    if (sqe == nullptr) return -EAGAIN;
  }
  Prepare(op->request, sqe);
  io_uring_sqe_set_data(sqe, op->ToKernel());
  const int error = Flush();
  // An entry cannot be taken back, so that it stays, but without the request.
  if (error < 0) PrepareNothing(sqe);
  return error;
}

size_t UringQueue::Collect(absl::Span<EndedOp> ended) {
  size_t count = 0;
  io_uring_cqe* cqe = nullptr;
  while (count < ended.size() && io_uring_peek_cqe(&ring_, &cqe) == 0) {
    void* const data = io_uring_cqe_get_data(cqe);
    if (data != nullptr) ended[count++] = {KernelOp::FromKernel(data), cqe->res};
    io_uring_cqe_seen(&ring_, cqe);
  }
  return count;
}

}  // namespace

absl::StatusOr<std::unique_ptr<IoEngine>> CreateUringEngine(uint32_t depth) {
  absl::StatusOr<UniqueFd> event = MakeEvent();
  if (!event.ok()) return event.status();
  auto queue = std::make_unique<UringQueue>();
  if (absl::Status status = queue->Init(depth, event->get()); !status.ok()) return status;
  return std::make_unique<KernelEngine>("io_uring", depth, *std::move(event), std::move(queue));
}

}  // namespace quarry::server
