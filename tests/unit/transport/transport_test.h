// The fixture of the conformance suite: what holds for every transport.
#ifndef QUARRY_TESTS_UNIT_TRANSPORT_TRANSPORT_TEST_H_
#define QUARRY_TESTS_UNIT_TRANSPORT_TRANSPORT_TEST_H_

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/transport/items.h"
#include "tests/unit/transport/link.h"

namespace quarry::transport {

using Kind = Transfer::Kind;

class TransportTest : public ::testing::TestWithParam<LinkKind> {
 protected:
  TransportTest() : link_(GetParam().make()) {}

  template <typename... Args>
  TestSlot* NewSlot(Args&&... args) {
    return &slots_.emplace_back(std::forward<Args>(args)...);
  }
  std::shared_ptr<TestRequest> NewRequest() { return std::make_shared<TestRequest>(); }

  TransferEndPtr Start(std::unique_ptr<TestTransfer> transfer) {
    TransferEndPtr end = transfer->end();
    link_->server().Start(std::move(transfer));
    return end;
  }
  TransferEndPtr Start(Kind kind, ItemId id, TestSlot* slot) {
    return Start(std::make_unique<TestTransfer>(kind, id, slot));
  }
  bool Wait(const std::function<bool()>& condition) { return WaitUntil(*link_, condition); }
  bool WaitForEnds(const std::vector<TransferEndPtr>& ends) {
    return Wait([&] {
      for (const TransferEndPtr& end : ends) {
        if (!end->done()) return false;
      }
      return true;
    });
  }

  // The link still moves an item each way, and neither end was closed.
  void ExpectLinkWorks() {
    constexpr uint64_t kRequest = ~uint64_t{0};
    const Bytes payload = Payload(99, 100'000);
    auto request = NewRequest();
    request->Add(Shape::kStrided8K, payload.size(), kIdentity);
    request->Add(Shape::kStrided8K, payload.size(), kIdentity);
    (*request)[1].memory.Fill(payload);
    link_->client().Expose(kRequest, request);
    TestSlot* slot = NewSlot(payload.size());
    const auto write = Start(Kind::kWrite, {kRequest, 0}, NewSlot(payload, kIdentity));
    const auto read = Start(Kind::kRead, {kRequest, 1}, slot);
    ASSERT_TRUE(WaitForEnds({write, read}));
    ASSERT_TRUE(Wait([&] { return (*request)[0].arrived == 1; }));
    EXPECT_EQ(read->status, TransferStatus::kOk);
    EXPECT_TRUE((*request)[0].memory.Holds(payload));
    EXPECT_TRUE(slot->Holds(payload));
    EXPECT_EQ(link_->broken(), 0);
  }

  std::deque<TestSlot> slots_;  // outlive the link
  std::unique_ptr<Link> link_;
};

inline std::string LinkName(const ::testing::TestParamInfo<LinkKind>& info) { return info.param.name; }

}  // namespace quarry::transport

#endif  // QUARRY_TESTS_UNIT_TRANSPORT_TRANSPORT_TEST_H_
