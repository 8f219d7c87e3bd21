// Every transport: which bytes land where, and what is found when they are not right.
#include <algorithm>
#include <thread>

#include "tests/unit/common/test_seed.h"
#include "tests/unit/transport/transport_test.h"

namespace quarry::transport {
namespace {

constexpr size_t kSizes[] = {1, 4095, 64 << 10, (64 << 10) + 1, 2 << 20};

class TransportBytesTest : public TransportTest {};
INSTANTIATE_TEST_SUITE_P(All, TransportBytesTest, ::testing::ValuesIn(AllLinks()), LinkName);

TEST_P(TransportBytesTest, WritesLandEveryByteAndNoOther) {
  auto request = NewRequest();
  std::vector<Bytes> payloads;
  for (size_t bytes : kSizes) {
    for (Shape shape : kShapes) {
      payloads.push_back(Payload(payloads.size(), bytes));
      request->Add(shape, bytes, kIdentity + payloads.size());
    }
  }
  link_->client().Expose(1, request);
  std::vector<TransferEndPtr> ends;
  for (uint32_t i = 0; i < request->size(); ++i) {
    ends.push_back(Start(Kind::kWrite, {1, i}, NewSlot(payloads[i], kIdentity + i + 1)));
  }
  ASSERT_TRUE(WaitForEnds(ends));
  for (uint32_t i = 0; i < request->size(); ++i) {
    TestRequest::Buffer& buffer = (*request)[i];
    ASSERT_TRUE(Wait([&] { return buffer.reports() > 0; })) << "item " << i;
    EXPECT_EQ(ends[i]->status, TransferStatus::kOk);
    EXPECT_EQ(ends[i]->finished, 1);
    EXPECT_EQ(buffer.arrived, 1);
    EXPECT_EQ(buffer.reports(), 1);
    EXPECT_EQ(buffer.arrived_bytes, payloads[i].size());
    EXPECT_TRUE(buffer.memory.Holds(payloads[i])) << "item " << i;
  }
}

TEST_P(TransportBytesTest, ReadsLandEveryByteWithItsSums) {
  auto request = NewRequest();
  std::vector<Bytes> payloads;
  std::vector<TestSlot*> slots;
  for (size_t bytes : kSizes) {
    for (Shape shape : kShapes) {
      for (bool checksum : {true, false}) {
        payloads.push_back(Payload(100 + payloads.size(), bytes));
        const uint32_t index = request->Add(shape, bytes, kIdentity, checksum);
        (*request)[index].memory.Fill(payloads.back());
        slots.push_back(NewSlot(bytes));
      }
    }
  }
  link_->client().Expose(1, request);
  std::vector<TransferEndPtr> ends;
  for (uint32_t i = 0; i < request->size(); ++i) ends.push_back(Start(Kind::kRead, {1, i}, slots[i]));
  ASSERT_TRUE(WaitForEnds(ends));
  for (uint32_t i = 0; i < request->size(); ++i) {
    TestRequest::Buffer& buffer = (*request)[i];
    ASSERT_TRUE(Wait([&] { return buffer.reports() > 0; }));
    const TestSlot expected(payloads[i], kIdentity);
    EXPECT_EQ(ends[i]->status, TransferStatus::kOk);
    EXPECT_EQ(buffer.sent, 1);
    EXPECT_EQ(buffer.reports(), 1);
    EXPECT_TRUE(slots[i]->Holds(payloads[i])) << "item " << i;
    EXPECT_EQ(slots[i]->sums, expected.sums) << "item " << i;
    EXPECT_EQ(ends[i]->root, buffer.item.checksum ? expected.root : 0) << "item " << i;
    EXPECT_TRUE(buffer.memory.Holds(payloads[i])) << "a source must not change";
  }
}

constexpr size_t kPayloadBytes = 300'000;  // four chunks and a part

struct Range {
  size_t offset;
  size_t bytes;
};
constexpr Range kRanges[] = {{0, kPayloadBytes}, {0, 65'536},  {65'536, 131'072}, {0, 1},          {1, 65'535},
                             {100, 200},         {65'530, 12}, {70'000, 150'000}, {131'072, 1},    {262'144, 37'856},
                             {262'145, 100},     {299'999, 1}, {0, 299'999},      {65'535, 65'538}};

TEST_P(TransportBytesTest, RangesAreVerifiedByTheirChunks) {
  const Bytes payload = Payload(5, kPayloadBytes);
  uint64_t id = 1;
  for (const Range& range : kRanges) {
    SCOPED_TRACE(testing::Message() << "offset " << range.offset << " bytes " << range.bytes);
    // Bit to flip in the slot: none; the range's first, last and middle byte; beside it.
    const size_t end = range.offset + range.bytes;
    std::vector<std::pair<size_t, bool>> flips = {
        {range.offset, true}, {end - 1, true}, {(range.offset + end) / 2, true}};
    if (range.offset > 0) flips.emplace_back(range.offset - 1, false);
    if (end < kPayloadBytes) flips.emplace_back(end, false);
    flips.emplace_back(kPayloadBytes, false);
    for (const auto& [flip, found] : flips) {
      auto request = NewRequest();
      request->Add(Shape::kStrided8K, range.bytes, kIdentity);
      link_->client().Expose(id, request);
      TestSlot* slot = NewSlot(payload, kIdentity);
      auto transfer = std::make_unique<TestTransfer>(Kind::kWrite, ItemId{id, 0}, slot);
      transfer->WithRange(range.offset, range.bytes);
      if (flip < kPayloadBytes) slot->memory.data()[flip] ^= std::byte{1};
      const auto transfer_end = Start(std::move(transfer));
      TestRequest::Buffer& buffer = (*request)[0];
      ASSERT_TRUE(Wait([&] { return buffer.reports() > 0 && transfer_end->done(); }));
      EXPECT_EQ(buffer.arrived, found ? 0 : 1) << "flipped byte " << flip;
      EXPECT_EQ(buffer.failed, found ? 1 : 0) << "flipped byte " << flip;
      EXPECT_TRUE(buffer.memory.GapsIntact());
      if (!found) {
        EXPECT_TRUE(buffer.memory.Holds(Bytes(payload.begin() + static_cast<ptrdiff_t>(range.offset),
                                              payload.begin() + static_cast<ptrdiff_t>(end))));
      } else {
        EXPECT_EQ(buffer.failure, TransferStatus::kChecksum);
      }
      ++id;
    }
  }
}

struct Damage {
  const char* what;
  std::function<void(TestSlot&)> apply;
  uint64_t identity = kIdentity;  // that the client expects
  bool found_without_checksum = false;
};

TEST_P(TransportBytesTest, DamageIsNeverTakenForTheBlock) {
  const Bytes payload = Payload(6, kPayloadBytes);
  const auto flip = [](size_t at) { return [at](TestSlot& slot) { slot.memory.data()[at] ^= std::byte{0x80}; }; };
  const Damage damages[] = {
      {"first bit", flip(0)},
      {"last bit", flip(kPayloadBytes - 1)},
      {"a bit in the middle", flip(150'000)},
      {"first sum", [](TestSlot& slot) { slot.sums.front() ^= 1; }},
      {"last sum", [](TestSlot& slot) { slot.sums.back() ^= 1; }},
      {"root", [](TestSlot& slot) { slot.root ^= 1; }},
      {"sums and bytes of another payload, consistent, under this root",
       [](TestSlot& slot) {
         slot.memory.data()[1] ^= std::byte{1};
         slot.sums[0] = ChunkSum(slot.memory.data(), kChunkBytes);
       }},
      {"the right bytes under another key", [](TestSlot&) {}, kIdentity + 1},
  };
  uint64_t id = 1;
  for (const Damage& damage : damages) {
    SCOPED_TRACE(damage.what);
    TestSlot* slot = NewSlot(payload, kIdentity);
    damage.apply(*slot);
    auto request = NewRequest();
    request->Add(Shape::kOdd, payload.size(), damage.identity);
    request->Add(Shape::kOdd, payload.size(), damage.identity, /*checksum=*/false);
    link_->client().Expose(id, request);
    const auto checked = Start(Kind::kWrite, {id, 0}, slot);
    const auto unchecked = Start(Kind::kWrite, {id, 1}, slot);
    ASSERT_TRUE(Wait([&] { return (*request)[0].reports() > 0 && (*request)[1].reports() > 0; }));
    ASSERT_TRUE(WaitForEnds({checked, unchecked}));
    EXPECT_EQ((*request)[0].failed, 1);
    EXPECT_EQ((*request)[0].failure, TransferStatus::kChecksum);
    EXPECT_EQ((*request)[0].arrived, 0);
    EXPECT_EQ((*request)[1].arrived, 1) << "who asks for no check gets none";
    EXPECT_TRUE((*request)[0].memory.GapsIntact());
    ++id;
  }
  ExpectLinkWorks();
}

// Of a large one, which may be verified part by part as it comes.
TEST_P(TransportBytesTest, DamageIsFoundWhereverItIsInALargeItem) {
  constexpr size_t kLargeBytes = (2 << 20) + 1000;
  const Bytes payload = Payload(8, kLargeBytes);
  uint64_t id = 1;
  for (size_t at = 0; at < kLargeBytes; at += 200'000, ++id) {
    SCOPED_TRACE(at);
    TestSlot* slot = NewSlot(payload, kIdentity);
    slot->memory.data()[at] ^= std::byte{0x10};
    auto request = NewRequest();
    request->Add(Shape::kStrided64K, kLargeBytes, kIdentity);
    link_->client().Expose(id, request);
    const auto end = Start(Kind::kWrite, {id, 0}, slot);
    ASSERT_TRUE(Wait([&] { return end->done() && (*request)[0].reports() > 0; }));
    EXPECT_EQ((*request)[0].failed, 1);
    EXPECT_EQ((*request)[0].failure, TransferStatus::kChecksum);
    EXPECT_EQ(link_->client().Withdraw(id, [] {}), Release::kReleased);
  }
  ExpectLinkWorks();
}

TEST_P(TransportBytesTest, WhatCannotBePreparedDoesNotMove) {
  for (Kind kind : {Kind::kWrite, Kind::kRead}) {
    const uint64_t id = kind == Kind::kWrite ? 1 : 2;
    auto request = NewRequest();
    request->Add(Shape::kContiguous, 1000, kIdentity);
    link_->client().Expose(id, request);
    auto transfer = std::make_unique<TestTransfer>(kind, ItemId{id, 0}, NewSlot(Payload(1, 1000), kIdentity));
    transfer->Refuse();
    const auto end = Start(std::move(transfer));
    ASSERT_TRUE(WaitForEnds({end}));
    EXPECT_EQ(end->status, TransferStatus::kChecksum);
    EXPECT_EQ(end->finished, 1);
    EXPECT_EQ((*request)[0].reports(), 0);
    EXPECT_TRUE((*request)[0].memory.Untouched());
  }
  ExpectLinkWorks();
}

TEST_P(TransportBytesTest, ItemsOfAnotherSizeAreRefused) {
  uint64_t id = 1;
  for (Kind kind : {Kind::kWrite, Kind::kRead}) {
    for (size_t slot_bytes : {size_t{1}, size_t{99'999}, size_t{100'001}, size_t{500'000}}) {
      SCOPED_TRACE(testing::Message() << (kind == Kind::kWrite ? "write " : "read ") << slot_bytes);
      auto request = NewRequest();
      request->Add(Shape::kStrided8K, 100'000, kIdentity);
      link_->client().Expose(id, request);
      TestSlot* slot = NewSlot(Payload(id, slot_bytes), kIdentity);
      const auto end = Start(kind, {id, 0}, slot);
      ASSERT_TRUE(WaitForEnds({end}));
      EXPECT_EQ(end->finished, 1);
      if (kind == Kind::kRead) {
        EXPECT_EQ(end->status, TransferStatus::kWrongSize);
        EXPECT_TRUE((*request)[0].memory.Untouched());
      } else {
        ASSERT_TRUE(Wait([&] { return (*request)[0].failed > 0; }));
        EXPECT_EQ((*request)[0].failure, TransferStatus::kWrongSize);
        EXPECT_EQ((*request)[0].failed, 1);
        EXPECT_EQ((*request)[0].arrived, 0);
        EXPECT_TRUE((*request)[0].memory.GapsIntact());
      }
      ++id;
    }
  }
  ExpectLinkWorks();
}

TEST_P(TransportBytesTest, ASourceReplacedWhileItIsReadIsNeverStoredMixed) {
  constexpr int kRounds = 30;
  constexpr size_t kBytes = (4 << 20) + 777;
  TestRandom random;
  const Bytes old_payload(kBytes, std::byte{0x11});
  const Bytes new_payload(kBytes, std::byte{0xEE});
  const TestSlot old_slot(old_payload, kIdentity);
  const TestSlot new_slot(new_payload, kIdentity);
  int found = 0;
  for (uint64_t id = 1; id <= kRounds; ++id) {
    slots_.clear();
    ReplaceableMemory source(old_payload, new_payload);
    const Segment segment{source.data(), kBytes, 0, 1};
    auto request = NewRequest();
    request->Add(Shape::kContiguous, 1, kIdentity);
    (*request)[0].item.segments = absl::MakeConstSpan(&segment, 1);
    (*request)[0].item.bytes = kBytes;
    link_->client().Expose(id, request);
    TestSlot* slot = NewSlot(kBytes);
    const auto end = Start(Kind::kRead, {id, 0}, slot);
    std::thread writer([&, spins = random.Between(0, 400'000)] {
      for (uint64_t i = 0; i < spins && !end->done(); ++i) {
      }
      source.Replace();
    });
    const bool ended = WaitForEnds({end});
    writer.join();
    ASSERT_TRUE(ended);
    // The server's check of the root against its own sums is the session's part.
    if (end->status == TransferStatus::kOk && end->root == RootSum(kIdentity, kBytes, slot->sums)) {
      const bool is_old = slot->Holds(old_payload);
      EXPECT_TRUE(is_old || slot->Holds(new_payload)) << "round " << id;
      EXPECT_EQ(slot->sums, (is_old ? old_slot : new_slot).sums);
    } else {
      ++found;
    }
    ASSERT_TRUE(Wait([&] { return (*request)[0].reports() == 1; }));
    EXPECT_EQ(link_->client().Withdraw(id, [] {}), Release::kReleased);
  }
  RecordProperty("replaced_while_read", found);
}

}  // namespace
}  // namespace quarry::transport
