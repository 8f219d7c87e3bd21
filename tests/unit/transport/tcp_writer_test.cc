#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "common/clock.h"
#include "common/transport/tcp/frame_writer.h"
#include "tests/unit/common/test_seed.h"
#include "tests/unit/transport/sockets.h"
#include "tests/unit/transport/wire.h"

namespace quarry::transport::tcp {
namespace {

constexpr int kTinyBuffer = 4096;
constexpr size_t kStepBytes = 1 << 20;

struct Sent {
  std::optional<TransferStatus> status;
  int meta_calls = 0;
  int done_calls = 0;
};

class TestOutgoing : public Outgoing {
 public:
  TestOutgoing(ItemId item, ScatteredBuffer* source, Sent* sent) : sent_(sent) {
    id = item;
    segments = source->segments();
    bytes = source->size();
  }
  ItemMeta Meta() override {
    ++sent_->meta_calls;
    sums_.resize(ChunkCount(bytes));
    SumSegments(segments, bytes, sums_.data());
    return {RootSum(1, bytes, sums_), {0, bytes, bytes}, {0, 0}, sums_};
  }
  void Done(TransferStatus status) override {
    ++sent_->done_calls;
    sent_->status = status;
  }

 private:
  Sent* const sent_;
  std::vector<uint64_t> sums_;
};

// A writer and a reader at the two ends of a connection with tiny buffers.
class FrameWriterTest : public ::testing::Test {
 protected:
  struct Item {
    Item(Shape shape, const Bytes& bytes) : source(shape, bytes.size()), payload(bytes) { source.Fill(bytes); }
    ScatteredBuffer source;
    Bytes payload;
    Sent sent;
  };
  Item& NewItem(Shape shape, size_t bytes) {
    Item& item = *items_.emplace_back(std::make_unique<Item>(shape, Payload(items_.size(), bytes)));
    sink_.Add(Shape::kOdd, bytes);
    return item;
  }
  // Item `index` is {request, index} on its way; it lands when `request` is 1.
  void Push(uint32_t index, uint64_t request = 1, int64_t deadline_ns = 0) {
    auto outgoing =
        std::make_unique<TestOutgoing>(ItemId{request, index}, &items_[index]->source, &items_[index]->sent);
    outgoing->deadline_ns = deadline_ns;
    writer_->Push(std::move(outgoing));
  }
  void Write() { ASSERT_TRUE(writer_->Write(pair_.first.get(), kStepBytes).ok()); }
  void Read(size_t budget = kStepBytes) { ASSERT_TRUE(reader_.Read(pair_.second.get(), budget).ok()); }
  void Drain() {
    while (!writer_->idle()) Write(), Read();
    Read();
  }
  bool Arrived(uint32_t index) {
    const std::string line = absl::StrCat("received 1/", index, " ", items_[index]->payload.size(), " intact");
    return std::count(sink_.log().begin(), sink_.log().end(), line) == 1 &&
           sink_.place(index).buffer.Holds(items_[index]->payload);
  }

  std::vector<std::unique_ptr<Item>> items_;
  RecordingSink sink_;
  SocketPair pair_ = LocalPair(kTinyBuffer);
  FrameReader reader_{&sink_};
  std::unique_ptr<FrameWriter> writer_ = std::make_unique<FrameWriter>();
};

TEST_F(FrameWriterTest, PartialSendsArriveWhole) {
  TestRandom random;
  const size_t sizes[] = {1, 100, 65'536, 65'537, 300'000, 2'500'000};
  for (size_t bytes : sizes) {
    for (Shape shape : kShapes) NewItem(shape, bytes);
  }
  for (uint32_t i = 0; i < items_.size(); ++i) Push(i);
  EXPECT_EQ(writer_->queued(), items_.size());
  while (!writer_->idle()) Write(), Read(random.Between(1, 20'000));
  Read();
  for (uint32_t i = 0; i < items_.size(); ++i) {
    EXPECT_TRUE(Arrived(i)) << i;
    EXPECT_EQ(items_[i]->sent.status, TransferStatus::kOk);
    EXPECT_EQ(items_[i]->sent.done_calls, 1);
    EXPECT_EQ(items_[i]->sent.meta_calls, 1);
  }
  EXPECT_EQ(writer_->queued(), 0u);
}

TEST_F(FrameWriterTest, ManyTinySegmentsArriveWhole) {
  constexpr size_t kPieces = 20'000;
  Bytes memory = Payload(1, kPieces * 16);
  const Segment strided{memory.data(), 8, 16, kPieces};
  ScatteredBuffer unused(Shape::kContiguous, 1);
  Sent sent;
  auto outgoing = std::make_unique<TestOutgoing>(ItemId{1, 0}, &unused, &sent);
  outgoing->segments = absl::MakeConstSpan(&strided, 1);
  outgoing->bytes = kPieces * 8;
  sink_.Add(Shape::kContiguous, kPieces * 8);
  writer_->Push(std::move(outgoing));
  Drain();
  Bytes expected;
  for (size_t i = 0; i < kPieces; ++i) {
    expected.insert(expected.end(), memory.begin() + static_cast<ptrdiff_t>(i * 16),
                    memory.begin() + static_cast<ptrdiff_t>(i * 16 + 8));
  }
  EXPECT_TRUE(sink_.place(0).buffer.Holds(expected));
  EXPECT_EQ(sent.status, TransferStatus::kOk);
}

TEST_F(FrameWriterTest, SignalsGoBeforeWhatHasNotBegun) {
  NewItem(Shape::kContiguous, 1000);
  Push(0);
  writer_->PushSignal(FrameType::kPull, {5, 6});
  writer_->PushSignal(FrameType::kAbort, {7, 8});
  EXPECT_EQ(writer_->queued(), 3u);
  Drain();
  EXPECT_EQ(sink_.log(), (std::vector<std::string>{"pull 5/6", "abort 7/8", "find 1/0", "received 1/0 1000 intact"}));
}

TEST_F(FrameWriterTest, ACancelInTheMiddleOfAFrameKeepsTheStreamInStep) {
  TestRandom random;
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    items_.clear();
    sink_ = RecordingSink();
    // A request of two items, between items of others.
    NewItem(Shape::kContiguous, random.Between(1, 50'000));
    NewItem(Shape::kStrided8K, random.Between(1, 600'000));
    NewItem(Shape::kOdd, random.Between(1, 100'000));
    NewItem(Shape::kOdd, random.Between(1, 100'000));
    Push(0);
    Push(1, /*request=*/2);
    Push(2, /*request=*/2);
    Push(3);
    for (uint64_t i = random.Between(0, 40); i > 0; --i) Write(), Read(random.Between(1, 30'000));
    writer_->Cancel(3);  // of none
    writer_->Cancel(2);
    for (uint32_t i : {1, 2}) {
      EXPECT_EQ(items_[i]->sent.done_calls, 1) << "done when Cancel returns";
      EXPECT_TRUE(items_[i]->sent.status == TransferStatus::kCancelled ||
                  items_[i]->sent.status == TransferStatus::kOk);
      items_[i]->source.memory().Lock();  // reading it now would fail the send
    }
    writer_->Cancel(2);
    Drain();
    EXPECT_TRUE(Arrived(0));
    EXPECT_TRUE(Arrived(3));
    for (uint32_t i : {1, 2}) {
      EXPECT_EQ(items_[i]->sent.done_calls, 1);
      items_[i]->source.memory().Unlock();
    }
  }
}

TEST_F(FrameWriterTest, NoFrameBeginsAfterTheDeadline) {
  NewItem(Shape::kContiguous, 2'000'000);
  NewItem(Shape::kContiguous, 1000);
  NewItem(Shape::kContiguous, 1000);
  Push(0, 2, Clock::Real()->NowNs() + 30'000'000);
  Push(1, 2, Clock::Real()->NowNs() - 1);
  Push(2);
  Write();
  ASSERT_FALSE(items_[0]->sent.status.has_value()) << "the socket took it all";
  const int64_t late = Clock::Real()->NowNs() + 31'000'000;
  while (Clock::Real()->NowNs() <= late) std::this_thread::yield();
  Drain();
  EXPECT_EQ(items_[0]->sent.status, TransferStatus::kCancelled);
  EXPECT_EQ(items_[0]->sent.done_calls, 1);
  EXPECT_EQ(items_[1]->sent.status, TransferStatus::kCancelled);
  EXPECT_EQ(items_[1]->sent.meta_calls, 0) << "an item that does not start is not read";
  EXPECT_TRUE(Arrived(2));
}

TEST_F(FrameWriterTest, DestructionEndsWhatIsLeft) {
  for (int writes : {0, 1, 5}) {
    items_.clear();
    writer_ = std::make_unique<FrameWriter>();
    pair_ = LocalPair(kTinyBuffer);
    for (int i = 0; i < 3; ++i) NewItem(Shape::kOdd, 100'000);
    for (uint32_t i = 0; i < 3; ++i) Push(i, 2);
    for (int i = 0; i < writes; ++i) Write();
    writer_.reset();
    for (const auto& item : items_) {
      EXPECT_EQ(item->sent.done_calls, 1);
      EXPECT_EQ(item->sent.status, TransferStatus::kClosed);
    }
  }
}

TEST_F(FrameWriterTest, AClosedPeerIsAnError) {
  NewItem(Shape::kContiguous, 100'000);
  Push(0);
  pair_.second = UniqueFd();
  EXPECT_EQ(writer_->Write(pair_.first.get(), kStepBytes).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(items_[0]->sent.done_calls, 0) << "the owner ends it by destroying the writer";
}

// The sums are those of the source before its first byte is sent.
TEST_F(FrameWriterTest, ASourceOverwrittenOnItsWayIsFound) {
  TestRandom random;
  int damaged = 0;
  for (int round = 0; round < 20; ++round) {
    items_.clear();
    sink_ = RecordingSink();
    Item& item = NewItem(Shape::kContiguous, 500'000);
    Push(0);
    Write();
    for (uint64_t i = random.Between(0, 20); i > 0; --i) Read(random.Between(1, 50'000)), Write();
    item.source.Fill(Bytes(500'000, std::byte{1}));
    Drain();
    const std::string& line = sink_.log().back();
    if (line == "received 1/0 500000 intact") {
      EXPECT_TRUE(sink_.place(0).buffer.Holds(item.payload)) << "neither the old bytes nor found";
    } else {
      EXPECT_EQ(line, "received 1/0 500000 damaged");
      ++damaged;
    }
  }
  EXPECT_GT(damaged, 0);
}

}  // namespace
}  // namespace quarry::transport::tcp
