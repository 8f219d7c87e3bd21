#include "tests/fakes/fake_node.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "common/checksum.h"
#include "common/clock.h"

namespace quarry::fakes {
namespace {

constexpr int64_t kPatienceNs = 60'000'000'000;
constexpr int64_t kBacklogProbeNs = 100'000'000;
constexpr size_t kMostToFillTheBacklog = 16;

int64_t Deadline() { return Clock::Real()->NowNs() + kPatienceNs; }

void Require(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "fake node: %s\n", what);
  std::abort();
}

std::vector<uint64_t> SumsOf(const std::vector<std::byte>& payload) {
  std::vector<uint64_t> sums;
  for (size_t at = 0; at < payload.size(); at += kChunkBytes) {
    sums.push_back(ChunkSum(payload.data() + at, std::min(kChunkBytes, payload.size() - at)));
  }
  return sums;
}

class FakeWrite : public transport::Transfer {
 public:
  explicit FakeWrite(FakeItem item) : item_(std::move(item)), sums_(SumsOf(item_.payload)) {
    kind = Kind::kWrite;
    id = {item_.request, item_.item};
    data = item_.payload.data();
    bytes = payload_bytes = item_.payload.size();
    root = RootSum(item_.identity_seed, bytes, sums_);
    if (item_.corrupt_sums) item_.payload[0] ^= std::byte{1};
    sums = sums_.data();
  }
  void Finish(transport::TransferStatus status) override { finished_.set_value(status); }
  std::future<transport::TransferStatus> finished() { return finished_.get_future(); }

 private:
  FakeItem item_;
  std::vector<uint64_t> sums_;
  std::promise<transport::TransferStatus> finished_;
};

class FakeRead : public transport::Transfer {
 public:
  FakeRead(uint64_t request, uint32_t item, std::vector<std::byte>* payload) : sums_(ChunkCount(payload->size())) {
    kind = Kind::kRead;
    id = {request, item};
    data = payload->data();
    bytes = payload_bytes = payload->size();
    sums = sums_.data();
  }
  void Finish(transport::TransferStatus status) override { finished_.set_value(status); }
  std::future<transport::TransferStatus> finished() { return finished_.get_future(); }

 private:
  std::vector<uint64_t> sums_;
  std::promise<transport::TransferStatus> finished_;
};

}  // namespace

bool FakeStream::TryRead(Received* received) {
  uint32_t length = 0;
  if (!ReadExactly(fd_.get(), &length, sizeof length, Deadline()).ok()) return false;
  received->bytes = std::make_unique<std::string>(length, '\0');
  if (!ReadExactly(fd_.get(), received->bytes->data(), length, Deadline()).ok()) return false;
  auto message = wire::DecodeClientMessage(*received->bytes);
  Require(message.ok(), "the client sent a malformed message");
  received->message = std::move(*message);
  return true;
}

Received FakeStream::Read() {
  Received received;
  Require(TryRead(&received), "the client sent no message");
  return received;
}

void FakeStream::Send(const wire::ServerMessage& message) {
  std::string framed;
  wire::AppendFramed(message, &framed);
  SendRaw(framed);
}

void FakeStream::SendRaw(absl::string_view bytes) {
  // The client may be gone: some tests want it so.
  (void)WriteAll(fd_.get(), bytes, Deadline());
}

std::future<transport::TransferStatus> FakeSession::StartWrite(FakeItem item) {
  auto transfer = std::make_unique<FakeWrite>(std::move(item));
  auto finished = transfer->finished();
  channel->Start(std::move(transfer));
  return finished;
}

std::future<transport::TransferStatus> FakeSession::StartRead(uint64_t request, uint32_t item,
                                                              std::vector<std::byte>* payload) {
  auto transfer = std::make_unique<FakeRead>(request, item, payload);
  auto finished = transfer->finished();
  channel->Start(std::move(transfer));
  return finished;
}

FakeNode::FakeNode() : bound_{"127.0.0.1", 0} { ListenAgain(); }

void FakeNode::ListenAgain() {
  auto listener = ListenTcp(bound_, &bound_);
  Require(listener.ok(), "cannot listen");
  listener_ = std::move(*listener);
}

void FakeNode::ListenWithoutRoom() {
  ListenAgain();
  Require(listen(listener_.get(), 0) == 0, "cannot shorten the backlog");
  while (true) {
    auto fd = Dial(address(), Clock::Real()->NowNs() + kBacklogProbeNs);
    if (!fd.ok()) return Require(absl::IsDeadlineExceeded(fd.status()), "the backlog does not fill");
    fill_the_backlog_.push_back(std::move(*fd));
    Require(fill_the_backlog_.size() < kMostToFillTheBacklog, "the backlog does not fill");
  }
}

bool FakeNode::IsDialled() const {
  // "  sl  local_address rem_address   st ...", addresses as hex IP:PORT; 02 is SYN_SENT.
  const std::string dialling = absl::StrFormat(":%04X 02 ", bound_.port);
  std::ifstream table("/proc/self/net/tcp");
  for (std::string line; std::getline(table, line);) {
    if (absl::StrContains(line, dialling)) return true;
  }
  return false;
}

FakeStream FakeNode::Accept() {
  pollfd entry{listener_.get(), POLLIN, 0};
  Require(poll(&entry, 1, kPatienceNs / 1'000'000) == 1, "nobody connects");
  UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  Require(static_cast<bool>(fd), "accept");
  std::string preface(wire::kPreface.size(), '\0');
  Require(ReadExactly(fd.get(), preface.data(), preface.size(), Deadline()).ok(), "no preface");
  Require(preface == wire::kPreface, "another preface");
  return FakeStream(std::move(fd));
}

FakeSession FakeNode::AcceptSession(const wire::Limits& limits) {
  const std::string session_id(wire::kSessionIdBytes, 's');
  wire::HelloReply greeting;
  greeting.session = session_id;
  greeting.limits = limits;
  FakeSession session;
  session.control = Accept();
  Received hello = session.control.Read();
  Require(hello.Is<wire::Hello>(), "the first message is no Hello");
  session.control.Send({hello.request(), greeting});
  FakeStream data = Accept();
  hello = data.Read();
  Require(hello.Is<wire::DataHello>() && hello.As<wire::DataHello>().session == session_id, "a wrong DataHello");
  data.Send({hello.request(), greeting});
  auto channel = transport::MakeServerChannel("tcp", {[](const absl::Status&) {}});
  Require(channel.ok(), "no channel");
  session.channel = std::move(*channel);
  Require(session.channel->AddStream(data.Release(), &loop_), "AddStream");
  return session;
}

void FakeNode::AnswerOpenNamespace(FakeStream* control, uint32_t handle, absl::string_view id) {
  const Received open = control->Read();
  Require(open.Is<wire::OpenNamespace>(), "not OpenNamespace");
  wire::NamespaceReply reply;
  reply.handle = handle;
  reply.id = id;
  reply.name = open.As<wire::OpenNamespace>().name;
  control->Send({open.request(), reply});
}

}  // namespace quarry::fakes
