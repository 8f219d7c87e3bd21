// FAKE. A node that does only what its test tells it to, over real sockets: for how the
// client takes wrong, late and missing answers. Stores nothing.
#ifndef QUARRY_TESTS_FAKES_FAKE_NODE_H_
#define QUARRY_TESTS_FAKES_FAKE_NODE_H_

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/net/event_loop.h"
#include "common/net/socket.h"
#include "common/session/messages.h"
#include "common/transport/registry.h"

namespace quarry::fakes {

// A message with the bytes that its views point into.
struct Received {
  std::unique_ptr<std::string> bytes;
  wire::ClientMessage message;

  template <typename Body>
  const Body& As() const {
    return std::get<Body>(message.body);
  }
  template <typename Body>
  bool Is() const {
    return std::holds_alternative<Body>(message.body);
  }
  uint64_t request() const { return message.request; }
};

// One accepted connection, its preface already read. Failures end the test process.
class FakeStream {
 public:
  FakeStream() = default;
  explicit FakeStream(UniqueFd fd) : fd_(std::move(fd)) {}

  Received Read();
  // False: the client has closed it.
  bool TryRead(Received* received);
  void Send(const wire::ServerMessage& message);
  void SendRaw(absl::string_view bytes);
  void Close() { fd_ = UniqueFd(); }
  int Release() { return fd_.release(); }

 private:
  UniqueFd fd_;
};

// One block's shard, as a get sends or a put pulls it.
struct FakeItem {
  uint64_t request = 0;
  uint32_t item = 0;
  uint64_t identity_seed = 0;
  std::vector<std::byte> payload;
  bool corrupt_sums = false;
};

// A session whose handshakes are over.
struct FakeSession {
  FakeStream control;
  std::unique_ptr<transport::ServerChannel> channel;

  // Sends the payload into the client's item. The future has how it ended.
  std::future<transport::TransferStatus> StartWrite(FakeItem item);
  // Pulls the client's item into `payload`, which has its size and outlives the transfer.
  std::future<transport::TransferStatus> StartRead(uint64_t request, uint32_t item, std::vector<std::byte>* payload);
};

class FakeNode {
 public:
  // Listens on a free port of loopback.
  FakeNode();

  std::string address() const { return FormatHostPort(bound_); }
  // The next connection.
  FakeStream Accept();
  // The next session with one data stream; answers Hello with `limits`.
  FakeSession AcceptSession(const wire::Limits& limits = {});
  // Answers the next message, which must be OpenNamespace.
  static void AnswerOpenNamespace(FakeStream* control, uint32_t handle, absl::string_view id);
  void StopListening() { listener_ = UniqueFd(); }
  // On the same port again.
  void ListenAgain();
  // The same, with no room in the backlog: whoever connects waits.
  void ListenWithoutRoom();
  // Whether somebody in this process waits to be connected.
  bool IsDialled() const;

 private:
  HostPort bound_;
  UniqueFd listener_;
  std::vector<UniqueFd> fill_the_backlog_;
  EventLoop loop_{"fake-node"};
};

}  // namespace quarry::fakes

#endif  // QUARRY_TESTS_FAKES_FAKE_NODE_H_
