#include "tools/bench/limit/copy_limit.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "tools/bench/limit/sockets.h"

namespace limit {
namespace {

constexpr size_t kMaxPieces = 512;  // of one process_vm call

char* MapMemfd(size_t bytes) {
  const int fd = memfd_create("quarry-bench-limit", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) Die("memfd");
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) Die("mmap");
  close(fd);
  memset(memory, 0, bytes);
  return static_cast<char*>(memory);
}

// A process that has the arena's pages for itself, and dies with this one.
int StartOwner(char* arena, size_t bytes) {
  int ends[2];
  if (pipe(ends) != 0) Die("pipe");
  const int pid = fork();
  if (pid < 0) Die("fork");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    memset(arena, 1, bytes);
    if (write(ends[1], "r", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char ready;
  if (read(ends[0], &ready, 1) != 1) Die("the other process has gone");
  close(ends[0]);
  close(ends[1]);
  return pid;
}

}  // namespace

CopyLimit::CopyLimit(const CopyOptions& options) : options_(options) {
  if (options.process_vm) {
    client_arena_ = MapArena(options.client_arena_bytes);
    madvise(client_arena_, options.client_arena_bytes, MADV_DONTNEED);
    // MapArena's are shared mappings or not: each process must see its own.
    void* own = mmap(client_arena_, options.client_arena_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (own == MAP_FAILED) Die("mmap");
    madvise(own, options.client_arena_bytes, MADV_HUGEPAGE);
    client_pid_ = StartOwner(client_arena_, options.client_arena_bytes);
  } else {
    client_arena_ = MapMemfd(options.client_arena_bytes);
  }
  server_arena_ = MapArena(options.server_arena_bytes);
}

CopyLimit::~CopyLimit() {
  if (client_pid_ == 0) return;
  kill(client_pid_, SIGKILL);
  waitpid(client_pid_, nullptr, 0);
}

void CopyLimit::CopyBlock(char* block, const size_t* places) const {
  const size_t pieces = options_.block_bytes / options_.segment_bytes;
  if (!options_.process_vm) {
    for (size_t i = 0; i < pieces; ++i, block += options_.segment_bytes) {
      char* place = client_arena_ + places[i] * options_.segment_bytes;
      options_.put ? memcpy(block, place, options_.segment_bytes) : memcpy(place, block, options_.segment_bytes);
    }
    return;
  }
  iovec remote[kMaxPieces];
  for (size_t done = 0; done < pieces;) {
    const size_t count = std::min(pieces - done, kMaxPieces);
    for (size_t i = 0; i < count; ++i) {
      remote[i] = {client_arena_ + places[done + i] * options_.segment_bytes, options_.segment_bytes};
    }
    const iovec local = {block + done * options_.segment_bytes, count * options_.segment_bytes};
    const ssize_t n = options_.put ? process_vm_readv(client_pid_, &local, 1, remote, count, 0)
                                   : process_vm_writev(client_pid_, &local, 1, remote, count, 0);
    if (n != static_cast<ssize_t>(local.iov_len)) Die("process_vm");
    done += count;
  }
}

double CopyLimit::Run(double seconds) {
  ++rounds_;
  std::vector<uint64_t> moved(options_.threads);
  std::vector<std::thread> threads;
  const double begin = NowSeconds();
  for (size_t t = 0; t < options_.threads; ++t) {
    threads.emplace_back([&, t] {
      Random random(rounds_ * 64 + t);
      const size_t pieces = options_.block_bytes / options_.segment_bytes;
      std::vector<size_t> places(pieces);
      do {
        for (size_t& place : places) place = random.Below(options_.client_arena_bytes / options_.segment_bytes);
        CopyBlock(
            server_arena_ + random.Below(options_.server_arena_bytes / options_.block_bytes) * options_.block_bytes,
            places.data());
        moved[t] += pieces * options_.segment_bytes;
      } while (NowSeconds() < begin + seconds);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double elapsed = NowSeconds() - begin;
  uint64_t total = 0;
  for (uint64_t bytes : moved) total += bytes;
  return static_cast<double>(total) / elapsed / 1e9;
}

}  // namespace limit
