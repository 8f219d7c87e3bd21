#include "tools/bench/limit/socket_limit.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>
#include <vector>

#include "tools/bench/limit/sockets.h"

namespace limit {
namespace {

constexpr size_t kMaxPieces = 64;       // of one readv or sendmsg
constexpr size_t kCallBytes = 1 << 20;  // that one call may cover
constexpr std::array<int, 7> kBufferSizes = {128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20, 0};
constexpr int kCalibrationRounds = 3;
constexpr double kCalibrationSeconds = 0.1;

// First on every connection, from the client.
struct Start {
  uint64_t put;
  uint64_t block_bytes;
  uint64_t seed;
  int64_t buffer_bytes;
};

struct ServerArena {
  char* memory = nullptr;
  size_t bytes = 0;
};

// Sends random blocks until the client has had enough.
void SendBlocks(int fd, const ServerArena& arena, const Start& start) {
  Random random(start.seed);
  const size_t blocks = arena.bytes / start.block_bytes;
  while (SendAll(fd, arena.memory + random.Below(blocks) * start.block_bytes, start.block_bytes)) {
  }
}

// Receives into random blocks until the client ends, then tells it how much came.
void ReceiveBlocks(int fd, const ServerArena& arena, const Start& start) {
  Random random(start.seed);
  const size_t blocks = arena.bytes / start.block_bytes;
  uint64_t total = 0;
  for (;;) {
    char* const block = arena.memory + random.Below(blocks) * start.block_bytes;
    size_t filled = 0;
    while (filled < start.block_bytes) {
      const ssize_t n = recv(fd, block + filled, start.block_bytes - filled, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        SendAll(fd, &total, sizeof(total));
        return;
      }
      filled += static_cast<size_t>(n);
      total += static_cast<uint64_t>(n);
    }
  }
}

void Serve(int fd, void* context) {
  Start start;
  if (!ReceiveAll(fd, &start, sizeof(start))) return;
  SetBuffers(fd, static_cast<int>(start.buffer_bytes));
  const ServerArena& arena = *static_cast<ServerArena*>(context);
  start.put != 0 ? ReceiveBlocks(fd, arena, start) : SendBlocks(fd, arena, start);
}

// Random pieces of the client's arena, as iovecs of which `Consume` takes what was moved.
class Pieces {
 public:
  Pieces(char* arena, size_t arena_bytes, size_t segment_bytes, uint64_t seed)
      : arena_(arena), segment_bytes_(segment_bytes), places_(arena_bytes / segment_bytes), random_(seed) {
    count_ = std::clamp<size_t>(kCallBytes / segment_bytes, 1, kMaxPieces);
    Draw();
  }
  iovec* data() { return iov_ + first_; }
  size_t size() const { return count_ - first_; }
  void Consume(size_t bytes) {
    while (bytes > 0) {
      iovec& piece = iov_[first_];
      const size_t n = std::min(bytes, piece.iov_len);
      piece.iov_base = static_cast<char*>(piece.iov_base) + n;
      piece.iov_len -= n;
      bytes -= n;
      if (piece.iov_len == 0 && ++first_ == count_) Draw();
    }
  }

 private:
  void Draw() {
    first_ = 0;
    for (size_t i = 0; i < count_; ++i) iov_[i] = {arena_ + random_.Below(places_) * segment_bytes_, segment_bytes_};
  }

  char* const arena_;
  const size_t segment_bytes_;
  const size_t places_;
  Random random_;
  iovec iov_[kMaxPieces];
  size_t count_ = 0;
  size_t first_ = 0;
};

// Bytes moved until `deadline`, some in any case.
uint64_t Receive(int fd, Pieces pieces, double deadline) {
  uint64_t total = 0;
  do {
    const ssize_t n = readv(fd, pieces.data(), static_cast<int>(pieces.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) Die("the server has gone");
    pieces.Consume(static_cast<size_t>(n));
    total += static_cast<uint64_t>(n);
  } while (NowSeconds() < deadline);
  return total;
}

// Bytes that the server says it has received of what was sent until `deadline`.
uint64_t Send(int fd, Pieces pieces, double deadline) {
  do {
    msghdr message = {};
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    const ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) Die("the server has gone");
    pieces.Consume(static_cast<size_t>(n));
  } while (NowSeconds() < deadline);
  shutdown(fd, SHUT_WR);
  uint64_t total = 0;
  if (!ReceiveAll(fd, &total, sizeof(total))) Die("the server has gone");
  return total;
}

// The server's arena; one for the process because its threads outlive every caller.
ServerArena* TheServerArena() {
  static auto* const arena = new ServerArena;
  return arena;
}

}  // namespace

StreamLimit::StreamLimit(const StreamOptions& options) : options_(options) {
  // Shared, so that the child has the pages that are faulted in here.
  ServerArena* const server_arena = TheServerArena();
  server_arena->bytes = options.server_arena_bytes;
  server_arena->memory = MapArena(options.server_arena_bytes);
  server_ = StartServer(Serve, server_arena);
  munmap(server_arena->memory, server_arena->bytes);
  client_arena_ = MapArena(options.client_arena_bytes);
  buffer_bytes_ = options.buffer_bytes;
  if (buffer_bytes_ < 0) Calibrate();
}

StreamLimit::~StreamLimit() { StopServer(server_); }

double StreamLimit::Run(double seconds) { return RunWith(seconds, buffer_bytes_); }

double StreamLimit::RunWith(double seconds, int buffer_bytes) {
  std::vector<int> fds;
  for (size_t i = 0; i < options_.connections; ++i) {
    fds.push_back(Connect(server_.port, buffer_bytes));
    const Start start = {options_.put, options_.block_bytes, ++rounds_, buffer_bytes};
    if (!SendAll(fds.back(), &start, sizeof(start))) Die("the server has gone");
  }
  std::vector<uint64_t> moved(fds.size());
  std::vector<std::thread> threads;
  const double begin = NowSeconds();
  for (size_t i = 0; i < fds.size(); ++i) {
    threads.emplace_back([&, i] {
      Pieces pieces(client_arena_, options_.client_arena_bytes, options_.segment_bytes, rounds_ * 64 + i);
      const double deadline = begin + seconds;
      moved[i] = options_.put ? Send(fds[i], pieces, deadline) : Receive(fds[i], pieces, deadline);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double elapsed = NowSeconds() - begin;
  uint64_t total = 0;
  for (uint64_t bytes : moved) total += bytes;
  for (int fd : fds) close(fd);
  return static_cast<double>(total) / elapsed / 1e9;
}

void StreamLimit::Calibrate() {
  std::array<std::vector<double>, kBufferSizes.size()> rates;
  for (int round = 0; round < kCalibrationRounds; ++round) {
    for (size_t i = 0; i < kBufferSizes.size(); ++i) rates[i].push_back(RunWith(kCalibrationSeconds, kBufferSizes[i]));
  }
  double best = 0;
  for (size_t i = 0; i < kBufferSizes.size(); ++i) {
    std::sort(rates[i].begin(), rates[i].end());
    const double median = rates[i][kCalibrationRounds / 2];
    if (median > best) {
      best = median;
      buffer_bytes_ = kBufferSizes[i];
    }
  }
}

}  // namespace limit
