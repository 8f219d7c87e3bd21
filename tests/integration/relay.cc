#include "tests/integration/relay.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "common/clock.h"

namespace quarry::testing {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);

}  // namespace

Relay::Relay(std::string server, uint32_t data_streams)
    : server_(std::move(server)), streams_(1 + data_streams), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  HostPort bound;
  auto listener = ListenTcp({"127.0.0.1", 0}, &bound);
  if (!listener.ok() || !wake_) std::abort();
  listener_ = *std::move(listener);
  address_ = FormatHostPort(bound);
  thread_ = std::thread([this] { Main(); });
}

Relay::~Relay() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  Wake();
  thread_.join();
}

void Relay::Wake() const {
  const uint64_t one = 1;
  if (write(wake_.get(), &one, sizeof one) != sizeof one) std::abort();
}

void Relay::Limit(Direction direction, uint64_t bytes) {
  {
    std::lock_guard lock(mutex_);
    left_[direction] = bytes;
  }
  Wake();
}

void Relay::Open(Direction direction) { Limit(direction, UINT64_MAX); }

void Relay::WaitUntilHeldUp(Direction direction) {
  std::unique_lock lock(mutex_);
  const auto held_up = [&] {
    return std::any_of(connections_.begin(), connections_.end(), [&](const Connection& connection) {
      return !connection.flows[direction].waiting.empty() && Allowed(connection, direction) == 0;
    });
  };
  if (held_up_.wait_for(lock, kPatience, held_up)) return;
  std::fprintf(stderr, "relay: nothing is held up\n");
  std::abort();
}

size_t Relay::Allowed(const Connection& connection, Direction direction) const {
  const size_t waiting = connection.flows[direction].waiting.size();
  return connection.data ? static_cast<size_t>(std::min<uint64_t>(waiting, left_[direction])) : waiting;
}

void Relay::Accept() {
  UniqueFd client(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!client) return;
  auto server = Dial(server_, Clock::Real()->NowNs() + 1'000'000'000);
  const bool data = accepted_ % streams_ != 0;
  if (!server.ok()) return;  // the client sees its connection closed, and comes again
  ++accepted_;
  SetNoDelay(client.get());
  Connection& connection = connections_.emplace_back();
  connection.data = data;
  connection.client = std::move(client);
  connection.server = *std::move(server);
  connection.flows[kToClient] = {connection.server.get(), connection.client.get(), {}, false};
  connection.flows[kToServer] = {connection.client.get(), connection.server.get(), {}, false};
}

void Relay::Move(Connection* connection, Direction direction) {
  Flow& flow = connection->flows[direction];
  if (flow.MayReceive()) {
    char part[kMostWaiting];
    const ssize_t got = recv(flow.from, part, kMostWaiting - flow.waiting.size(), 0);
    if (got > 0) flow.waiting.append(part, static_cast<size_t>(got));
    flow.ended = got == 0 || (got < 0 && errno != EAGAIN);
  }
  if (const size_t allowed = Allowed(*connection, direction); allowed > 0) {
    const ssize_t sent = send(flow.to, flow.waiting.data(), allowed, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) connection->broken = true;
    if (sent > 0) {
      flow.waiting.erase(0, static_cast<size_t>(sent));
      if (connection->data && left_[direction] != UINT64_MAX) left_[direction] -= static_cast<uint64_t>(sent);
    }
  }
  // What is held up of a peer that is gone is lost with it.
  if (flow.ended && (flow.waiting.empty() || Allowed(*connection, direction) == 0)) connection->broken = true;
}

void Relay::Main() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    std::vector<pollfd> entries = {{listener_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    for (const Connection& connection : connections_) {
      short client = 0;
      short server = 0;
      if (connection.flows[kToServer].MayReceive()) client |= POLLIN;
      if (connection.flows[kToClient].MayReceive()) server |= POLLIN;
      if (Allowed(connection, kToClient) > 0) client |= POLLOUT;
      if (Allowed(connection, kToServer) > 0) server |= POLLOUT;
      // Without events, a peer that hung up would be reported again and again.
      entries.push_back({client != 0 ? connection.client.get() : -1, client, 0});
      entries.push_back({server != 0 ? connection.server.get() : -1, server, 0});
    }
    lock.unlock();
    poll(entries.data(), entries.size(), -1);
    lock.lock();
    uint64_t woken = 0;
    if ((entries[1].revents & POLLIN) != 0 && read(wake_.get(), &woken, sizeof woken) < 0) continue;
    for (Connection& connection : connections_) {
      Move(&connection, kToClient);
      Move(&connection, kToServer);
    }
    connections_.remove_if([](const Connection& connection) { return connection.broken; });
    if ((entries[0].revents & POLLIN) != 0) Accept();
    held_up_.notify_all();
  }
}

}  // namespace quarry::testing
