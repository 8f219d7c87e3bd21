// What the tests of client and node processes share: a client's memory and its one item, and a
// node for one client.
#ifndef QUARRY_TESTS_UNIT_TRANSPORT_SHM_PROCESSES_H_
#define QUARRY_TESTS_UNIT_TRANSPORT_SHM_PROCESSES_H_

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <utility>

#include "common/net/event_loop.h"
#include "common/transport/shm/server_channel.h"
#include "tests/unit/transport/items.h"
#include "tests/unit/transport/shm_peers.h"
#include "tests/unit/transport/sockets.h"

namespace quarry::transport::shm {

inline constexpr size_t kMemoryBytes = 8 << 20;

// For at most a minute.
inline bool Await(const std::function<bool()>& condition) {
  for (int i = 0; i < 60'000 && !condition(); ++i) usleep(1000);
  return condition();
}

// The client's memory: of some kind, with the file behind it.
struct Memory {
  explicit Memory(MemoryKind kind) {
    if (kind == MemoryKind::kSealedMemfd) file = Memfd(kMemoryBytes, true, true);
    if (kind == MemoryKind::kShmFile) file = Memfd(kMemoryBytes, false, true);
    const int flags = file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    void* mapped = mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, flags, file.get(), 0);
    if (mapped == MAP_FAILED) std::abort();
    data = static_cast<std::byte*>(mapped);
    segment = {data, kMemoryBytes, 0, 1};
  }
  UniqueFd file;
  std::byte* data;
  Segment segment;
};

class OneItem : public ExposedRequest {
 public:
  OneItem(const Memory& memory, bool checksum)
      : item_{absl::MakeConstSpan(&memory.segment, 1), kMemoryBytes, checksum, 7} {}
  const Item* item(uint32_t index) const override { return index == 0 ? &item_ : nullptr; }
  void OnItemArrived(uint32_t, size_t) override {}
  void OnItemSent(uint32_t) override {}
  void OnItemFailed(uint32_t, TransferStatus) override {}

 private:
  const Item item_;
};

// The node's end, for one client process.
class Node {
 public:
  explicit Node(int listener) : channel_(std::make_unique<ShmServerChannel>(Context())) {
    if (!channel_->AddSharedStream(AcceptOne(listener).release(), &loop_, /*first=*/true)) std::abort();
  }
  ~Node() { channel_.reset(); }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ServerChannelContext Context() {
    return {.on_closed = [this](const absl::Status&) { ++closed_; }};
  }
  TransferEndPtr Start(Transfer::Kind kind, uint64_t request, TestSlot* slot) {
    auto transfer = std::make_unique<TestTransfer>(kind, ItemId{request, 0}, slot);
    TransferEndPtr end = transfer->end();
    channel_->Start(std::move(transfer));
    return end;
  }
  ShmServerChannel& channel() { return *channel_; }
  int closed() const { return closed_; }

 private:
  std::atomic<int> closed_{0};
  EventLoop loop_{"t-server"};
  std::unique_ptr<ShmServerChannel> channel_;
};

}  // namespace quarry::transport::shm

#endif  // QUARRY_TESTS_UNIT_TRANSPORT_SHM_PROCESSES_H_
