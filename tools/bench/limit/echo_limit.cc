#include "tools/bench/limit/echo_limit.h"

#include <algorithm>
#include <thread>

#include "tools/bench/limit/sockets.h"

namespace limit {
namespace {

// First on every connection, from the client.
struct EchoStart {
  uint64_t request_bytes;
  uint64_t reply_bytes;
};

void ServeEcho(int fd, void*) {
  EchoStart start;
  SetBuffers(fd, 0);
  if (!ReceiveAll(fd, &start, sizeof(start))) return;
  std::vector<char> request(start.request_bytes), reply(start.reply_bytes);
  while (ReceiveAll(fd, request.data(), request.size()) && SendAll(fd, reply.data(), reply.size())) {
  }
}

std::vector<uint32_t> RoundTrips(int fd, const EchoOptions& options, double deadline) {
  std::vector<char> request(options.request_bytes), reply(options.reply_bytes);
  std::vector<uint32_t> latencies;
  double begin = NowSeconds();
  do {  // once in any case
    if (!SendAll(fd, request.data(), request.size()) || !ReceiveAll(fd, reply.data(), reply.size())) {
      Die("the server has gone");
    }
    const double end = NowSeconds();
    latencies.push_back(static_cast<uint32_t>((end - begin) * 1e9));
    begin = end;
  } while (begin < deadline);
  return latencies;
}

}  // namespace

EchoLimit::EchoLimit(const EchoOptions& options) : options_(options) {
  server_ = StartServer(ServeEcho, nullptr);
  for (size_t i = 0; i < options.connections; ++i) {
    fds_.push_back(Connect(server_.port, 0));
    const EchoStart start = {options.request_bytes, options.reply_bytes};
    if (!SendAll(fds_.back(), &start, sizeof(start))) Die("the server has gone");
  }
}

EchoLimit::~EchoLimit() { StopServer(server_); }

std::vector<uint32_t> EchoLimit::Run(double seconds) {
  std::vector<std::vector<uint32_t>> parts(fds_.size());
  std::vector<std::thread> threads;
  const double deadline = NowSeconds() + seconds;
  for (size_t i = 0; i < fds_.size(); ++i) {
    threads.emplace_back([&, i] { parts[i] = RoundTrips(fds_[i], options_, deadline); });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<uint32_t> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace limit
