// The fixture of the conformance tests of how transfers end: requests of a few items, and stages of
// their way.
#ifndef QUARRY_TESTS_UNIT_TRANSPORT_TRANSPORT_ENDS_H_
#define QUARRY_TESTS_UNIT_TRANSPORT_TRANSPORT_ENDS_H_

#include <algorithm>
#include <initializer_list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tests/unit/transport/transport_test.h"

namespace quarry::transport {

class TransportEndsTest : public TransportTest {
 protected:
  static constexpr size_t kBlockBytes = 512 << 10;
  static constexpr uint32_t kItems = 3;
  static constexpr int kStages = 3 * kItems * static_cast<int>(kBlockBytes / (64 << 10)) / 2;

  struct Started {
    std::shared_ptr<TestRequest> request;
    std::vector<TransferEndPtr> ends;
  };
  // A request of kItems items, exposed, with all its transfers started.
  Started StartRequest(Kind kind, uint64_t id) {
    Started started{NewRequest(), {}};
    for (uint32_t i = 0; i < kItems; ++i) started.request->Add(Shape::kStrided64K, kBlockBytes, kIdentity);
    link_->client().Expose(id, started.request);
    for (uint32_t i = 0; i < kItems; ++i) started.ends.push_back(Start(kind, {id, i}, SlotFor(kind, i)));
    return started;
  }
  // Shared by the rounds of a test.
  TestSlot* SlotFor(Kind kind, uint32_t item) {
    auto& slot = slot_of_[{kind, item}];
    if (slot == nullptr) {
      slot = kind == Kind::kWrite ? NewSlot(Payload(item, kBlockBytes), kIdentity) : NewSlot(kBlockBytes);
    }
    return slot;
  }
  static void ExpectFinishedOnce(const Started& started, std::initializer_list<TransferStatus> allowed) {
    for (const TransferEndPtr& end : started.ends) {
      EXPECT_EQ(end->finished, 1);
      EXPECT_EQ(end->destroyed, 1);
      EXPECT_TRUE(std::find(allowed.begin(), allowed.end(), end->status.load()) != allowed.end())
          << "status " << static_cast<int>(end->status.load());
    }
    for (uint32_t i = 0; i < started.request->size(); ++i) EXPECT_LE((*started.request)[i].reports(), 1);
  }
  // Rounds that try every stage by small steps, and some more.
  static std::vector<int> Stages() {
    std::vector<int> stages = {0, 1, 2, 3, 4, 5};
    for (int stage = 8; stage < kStages; stage += 7) stages.push_back(stage);
    return stages;
  }
  void NudgeTimes(int times) {
    for (int i = 0; i < times; ++i) link_->Nudge();
  }

  std::map<std::pair<Kind, uint32_t>, TestSlot*> slot_of_;
};

}  // namespace quarry::transport

#endif  // QUARRY_TESTS_UNIT_TRANSPORT_TRANSPORT_ENDS_H_
