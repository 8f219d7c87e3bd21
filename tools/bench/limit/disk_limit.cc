#include "tools/bench/limit/disk_limit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>

namespace limit {
namespace {

constexpr uint64_t kPage = 4096;

}  // namespace

DiskLimit::DiskLimit(const DiskOptions& options) : options_(options) {
  options_.block_bytes = (options_.block_bytes + kPage - 1) / kPage * kPage;
  blocks_a_file_ = options_.file_bytes / options_.block_bytes;
  io_ = RawIo::Open(options_.io, options_.depth + 1);  // and a sync
  memory_ = MapArena(options_.depth * options_.block_bytes);
  MakeFiles();
  Move(true, files_.size() * blocks_a_file_ * options_.block_bytes, 0);
}

DiskLimit::~DiskLimit() {
  for (int fd : files_) close(fd);
}

void DiskLimit::MakeFiles() {
  for (uint64_t bytes = 0; bytes < options_.total_bytes; bytes += options_.file_bytes) {
    std::string path = options_.dir + "/quarry-bench-limit-XXXXXX";
    const int fd = mkostemp(path.data(), O_CLOEXEC | O_DIRECT);
    if (fd < 0) Die(("a file in " + options_.dir).c_str());
    unlink(path.c_str());
    errno = posix_fallocate(fd, 0, static_cast<off_t>(options_.file_bytes));
    if (errno != 0) Die("preallocating a file");
    if (fsync(fd) != 0) Die("fsync");
    files_.push_back(fd);
  }
}

DiskLimit::Place DiskLimit::NextInOrder() {
  const uint64_t block = next_++ % (files_.size() * blocks_a_file_);
  return {files_[block / blocks_a_file_], block % blocks_a_file_ * options_.block_bytes};
}

DiskLimit::Place DiskLimit::AtRandom() {
  return {files_[random_.Below(files_.size())], random_.Below(blocks_a_file_) * options_.block_bytes};
}

double DiskLimit::Run(double seconds) {
  const double begin = NowSeconds();
  const uint64_t bytes = Move(options_.write, options_.block_bytes, begin + seconds);
  return static_cast<double>(bytes) / (NowSeconds() - begin) / 1e9;
}

uint64_t DiskLimit::Move(bool write, uint64_t bytes, double deadline) {
  const uint32_t sync_tag = options_.depth;
  uint64_t moved = 0, unsynced = 0;
  uint32_t in_flight = 0;
  bool syncing = false;
  int fd = -1;  // that was read or written last
  std::vector<uint32_t> idle, ended;
  for (uint32_t tag = 0; tag < options_.depth; ++tag) idle.push_back(tag);
  while (true) {
    for (; !idle.empty() && (moved < bytes || NowSeconds() < deadline); idle.pop_back()) {
      const Place place = write ? NextInOrder() : AtRandom();
      fd = place.fd;
      io_->Submit(write ? RawIo::Kind::kWrite : RawIo::Kind::kRead, fd, memory_ + idle.back() * options_.block_bytes,
                  options_.block_bytes, place.offset, idle.back());
      ++in_flight;
    }
    // Others go on meanwhile; at the end the rest.
    if (write && !syncing && unsynced >= (in_flight == 0 ? 1 : options_.sync_bytes)) {
      io_->Submit(RawIo::Kind::kSync, fd, nullptr, 0, 0, sync_tag);
      syncing = true;
      unsynced = 0;
    }
    if (in_flight == 0 && !syncing) return moved;
    ended.clear();
    io_->Wait(&ended);
    for (uint32_t tag : ended) {
      if (tag == sync_tag) {
        syncing = false;
        continue;
      }
      idle.push_back(tag);
      --in_flight;
      moved += options_.block_bytes;
      unsynced += options_.block_bytes;
    }
  }
}

}  // namespace limit
