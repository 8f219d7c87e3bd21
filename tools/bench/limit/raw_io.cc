#include "tools/bench/limit/raw_io.h"

#include <errno.h>
#include <libaio.h>
#include <liburing.h>
#include <string.h>

#include <algorithm>

#include "tools/bench/limit/sockets.h"

namespace limit {
namespace {

// The end of a request that was to move `bytes`.
void Check(int64_t result, size_t bytes) {
  if (result == static_cast<int64_t>(bytes)) return;
  errno = result < 0 ? static_cast<int>(-result) : EIO;
  Die("disk IO");
}

class Uring : public RawIo {
 public:
  // nullptr: refused, with errno.
  static std::unique_ptr<RawIo> Open(uint32_t depth) {
    std::unique_ptr<Uring> io(new Uring(depth));
    const int failed = io_uring_queue_init(depth, &io->ring_, 0);
    if (failed == 0) return io;
    io->depth_ = 0;
    errno = -failed;
    return nullptr;
  }
  ~Uring() override {
    if (depth_ != 0) io_uring_queue_exit(&ring_);
  }

  const char* name() const override { return "io_uring"; }

  void Submit(Kind kind, int fd, char* memory, size_t bytes, uint64_t offset, uint32_t tag) override {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
    if (kind == Kind::kSync) {
      io_uring_prep_fsync(entry, fd, IORING_FSYNC_DATASYNC);
    } else if (kind == Kind::kRead) {
      io_uring_prep_read(entry, fd, memory, static_cast<unsigned>(bytes), offset);
    } else {
      io_uring_prep_write(entry, fd, memory, static_cast<unsigned>(bytes), offset);
    }
    io_uring_sqe_set_data64(entry, uint64_t{tag} << 32 | bytes);
    if (io_uring_submit(&ring_) != 1) Die("io_uring_submit");
  }

  void Wait(std::vector<uint32_t>* tags) override {
    io_uring_cqe* entry = nullptr;
    int failed;
    while ((failed = io_uring_wait_cqe(&ring_, &entry)) == -EINTR) {
    }
    if (failed != 0) Die("io_uring_wait_cqe");
    do {
      const uint64_t data = io_uring_cqe_get_data64(entry);
      Check(entry->res, static_cast<uint32_t>(data));
      tags->push_back(static_cast<uint32_t>(data >> 32));
      io_uring_cqe_seen(&ring_, entry);
    } while (io_uring_peek_cqe(&ring_, &entry) == 0);
  }

 private:
  explicit Uring(uint32_t depth) : depth_(depth) {}
  uint32_t depth_;
  io_uring ring_ = {};
};

class Aio : public RawIo {
 public:
  explicit Aio(uint32_t depth) : blocks_(depth), events_(depth) {
    if (io_setup(static_cast<int>(depth), &context_) != 0) Die("io_setup");
    for (iocb& block : blocks_) free_.push_back(&block);
  }
  ~Aio() override { io_destroy(context_); }

  const char* name() const override { return "libaio"; }

  void Submit(Kind kind, int fd, char* memory, size_t bytes, uint64_t offset, uint32_t tag) override {
    iocb* block = free_.back();
    free_.pop_back();
    if (kind == Kind::kSync) {
      io_prep_fdsync(block, fd);
    } else if (kind == Kind::kRead) {
      io_prep_pread(block, fd, memory, bytes, static_cast<long long>(offset));
    } else {
      io_prep_pwrite(block, fd, memory, bytes, static_cast<long long>(offset));
    }
    block->data = reinterpret_cast<void*>(uint64_t{tag} << 32 | bytes);
    if (io_submit(context_, 1, &block) != 1) Die("io_submit");
  }

  void Wait(std::vector<uint32_t>* tags) override {
    int count;
    do count = io_getevents(context_, 1, static_cast<long>(events_.size()), events_.data(), nullptr);
    while (count == -EINTR);
    if (count < 1) Die("io_getevents");
    for (int i = 0; i < count; ++i) {
      const auto data = reinterpret_cast<uint64_t>(events_[i].data);
      Check(static_cast<int64_t>(events_[i].res), static_cast<uint32_t>(data));
      tags->push_back(static_cast<uint32_t>(data >> 32));
      free_.push_back(events_[i].obj);
    }
  }

 private:
  io_context_t context_ = nullptr;
  std::vector<iocb> blocks_;
  std::vector<io_event> events_;
  std::vector<iocb*> free_;
};

}  // namespace

std::unique_ptr<RawIo> RawIo::Open(const std::string& name, uint32_t depth) {
  if (name != "libaio") {
    if (auto io = Uring::Open(depth); io != nullptr) return io;
    if (name == "io_uring") Die("io_uring");
  }
  return std::make_unique<Aio>(depth);
}

}  // namespace limit
