// Every transport: memory that is unregistered while it moves.
#include <atomic>
#include <vector>

#include "absl/strings/string_view.h"
#include "tests/unit/transport/transport_ends.h"

namespace quarry::transport {
namespace {

// No caller does that on purpose. Where the server reaches registered memory itself, it has let go
// of it by then; elsewhere registering means nothing to it.
TEST_P(TransportEndsTest, MemoryUnregisteredWhileItMovesIsNotWrittenAfterwards) {
  const bool reached = absl::string_view(link_->client().transport_name()) == "shm";
  uint64_t id = 0;
  for (int stage : Stages()) {
    for (Kind kind : {Kind::kWrite, Kind::kRead}) {
      SCOPED_TRACE(testing::Message() << "stage " << stage << (kind == Kind::kWrite ? " write" : " read"));
      Started started = StartRequest(kind, ++id);
      NudgeTimes(stage);
      std::vector<Bytes> then;
      for (uint32_t i = 0; i < kItems; ++i) {
        link_->client().UnregisterMemory(RangeOf(started.request->item(i)->segments));
        if (!reached) continue;  // it is still written to
        const auto bytes = (*started.request)[i].memory.memory().bytes();
        then.emplace_back(bytes.begin(), bytes.end());
      }
      ASSERT_TRUE(WaitForEnds(started.ends));
      ExpectFinishedOnce(started, {TransferStatus::kOk, TransferStatus::kCancelled});
      std::atomic<int> released{0};
      if (link_->client().Withdraw(id, [&] { ++released; }) == Release::kReleased) ++released;
      ASSERT_TRUE(Wait([&] { return released > 0; }));
      for (uint32_t i = 0; i < kItems; ++i) {
        const auto bytes = (*started.request)[i].memory.memory().bytes();
        if (reached) {
          EXPECT_EQ(then[i], Bytes(bytes.begin(), bytes.end()));
        }
        if (kind == Kind::kWrite && (*started.request)[i].arrived == 1) {
          EXPECT_TRUE((*started.request)[i].memory.Holds(Payload(i, kBlockBytes)));
        }
      }
    }
  }
  ExpectLinkWorks();
}

}  // namespace
}  // namespace quarry::transport
