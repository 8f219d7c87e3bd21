#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/transport/tcp/frame_reader.h"
#include "tests/unit/common/test_seed.h"
#include "tests/unit/transport/sockets.h"
#include "tests/unit/transport/wire.h"

namespace quarry::transport::tcp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kBudget = 1 << 20;

// A reader at one end of a local connection.
class Feed {
 public:
  explicit Feed(FrameSink* sink) : reader(sink) {}

  // Sends and reads `bytes` in pieces no longer than `cut()` says.
  template <typename Cut>
  absl::Status Send(const std::string& bytes, Cut cut) {
    for (size_t sent = 0; sent < bytes.size();) {
      const size_t piece = std::min<size_t>(cut(), bytes.size() - sent);
      const ssize_t taken = send(pair_.first.get(), bytes.data() + sent, piece, MSG_NOSIGNAL);
      if (taken > 0) sent += static_cast<size_t>(taken);
      if (absl::Status status = reader.Read(pair_.second.get(), kBudget); !status.ok()) return status;
    }
    return reader.Read(pair_.second.get(), kBudget);
  }
  absl::Status Send(const std::string& bytes) {
    return Send(bytes, [] { return size_t{1} << 30; });
  }
  absl::Status Close() {
    pair_.first = UniqueFd();
    return reader.Read(pair_.second.get(), kBudget);
  }

  FrameReader reader;

 private:
  SocketPair pair_ = LocalPair();
};

// A stream with every kind of event in it.
struct Story {
  Story() {
    for (size_t i = 0; i < std::size(kSizes); ++i) payloads.push_back(Payload(i, kSizes[i]));
    stream = Joined(FramesOf({1, 0}, payloads[0]));
    stream += HeaderOf({FrameType::kPull, {9, 9}, 0, 0, 0});
    stream += Joined(FramesOf({2, 5}, payloads[3], 1000));  // discarded
    stream += Joined(FramesOf({1, 1}, payloads[1], 777));
    stream += HeaderOf({FrameType::kAbort, {8, 8}, 0, 0, 0});
    const auto cut_off = FramesOf({1, 2}, payloads[2], 3000);
    stream += cut_off[0] + cut_off[1];                // and then goes on to another item
    stream += Joined(FramesOf({1, 4}, payloads[1]));  // of the wrong size
    stream += Joined(FramesOf({1, 3}, payloads[3], 100'000, [](ItemMeta& meta) { meta.edge_sums[0] = 5; }));
    const auto aborted = FramesOf({1, 5}, payloads[2], 4096);
    stream += aborted[0] + HeaderOf({FrameType::kAbort, {1, 5}, 0, 0, 0});
    std::string damaged = Joined(FramesOf({1, 6}, payloads[1], 5000));
    damaged[200] = static_cast<char>(damaged[200] ^ 4);
    stream += damaged;
  }
  static constexpr size_t kSizes[] = {1, 10'000, 65'536, 200'001};
  void AddPlaces(RecordingSink* sink) const {
    const size_t sizes[] = {kSizes[0], kSizes[1], kSizes[2], kSizes[3], kSizes[2], kSizes[2], kSizes[1]};
    for (size_t i = 0; i < std::size(sizes); ++i) sink->Add(kShapes[i % std::size(kShapes)], sizes[i]);
  }
  std::vector<Bytes> payloads;
  std::string stream;
};

void ExpectStoryTold(const Story& story, RecordingSink& sink) {
  EXPECT_THAT(sink.log(), ElementsAre("find 1/0", "received 1/0 1 intact", "pull 9/9", "find 2/5", "find 1/1",
                                      "received 1/1 10000 intact", "abort 8/8", "find 1/2", "broken 1/2", "find 1/4",
                                      "broken 1/4 wrong size", "find 1/3", "received 1/3 200001 intact", "find 1/5",
                                      "abort 1/5", "find 1/6", "received 1/6 10000 damaged"));
  EXPECT_TRUE(sink.place(0).buffer.Holds(story.payloads[0]));
  EXPECT_TRUE(sink.place(1).buffer.Holds(story.payloads[1]));
  EXPECT_TRUE(sink.place(3).buffer.Holds(story.payloads[3]));
  for (uint32_t i = 0; i < 7; ++i) EXPECT_TRUE(sink.place(i).buffer.GapsIntact()) << i;
}

TEST(FrameReaderTest, ReadsAWholeStream) {
  const Story story;
  RecordingSink sink;
  story.AddPlaces(&sink);
  Feed feed(&sink);
  ASSERT_TRUE(feed.Send(story.stream).ok());
  ExpectStoryTold(story, sink);
  EXPECT_EQ(feed.Close().code(), absl::StatusCode::kUnavailable);
}

TEST(FrameReaderTest, ByteByByteIsNoDifferent) {
  const Story story;
  RecordingSink sink;
  story.AddPlaces(&sink);
  Feed feed(&sink);
  ASSERT_TRUE(feed.Send(story.stream, [] { return size_t{1}; }).ok());
  ExpectStoryTold(story, sink);
}

TEST(FrameReaderTest, RandomCutsAreNoDifferent) {
  const Story story;
  TestRandom random;
  for (int round = 0; round < 20; ++round) {
    RecordingSink sink;
    story.AddPlaces(&sink);
    Feed feed(&sink);
    ASSERT_TRUE(feed.Send(story.stream, [&] { return random.Between(1, random.Chance(0.5) ? 64 : 70'000); }).ok());
    ExpectStoryTold(story, sink);
  }
}

TEST(FrameReaderTest, ABudgetEndsARead) {
  RecordingSink sink;
  const Bytes payload = Payload(1, 100'000);
  sink.Add(Shape::kContiguous, payload.size());
  SocketPair pair = LocalPair();
  const std::string stream = Joined(FramesOf({1, 0}, payload, 1000));
  ASSERT_TRUE(WriteAll(pair.first.get(), stream, SoonNs()).ok());
  FrameReader reader(&sink);
  int reads = 0;
  while (sink.log().size() < 2) {
    ASSERT_TRUE(reader.Read(pair.second.get(), 5000).ok());
    ++reads;
  }
  EXPECT_GE(reads, 15);
  EXPECT_TRUE(sink.place(0).buffer.Holds(payload));
}

TEST(FrameReaderTest, ComputedSumsAreTheReceivers) {
  for (bool sender_sums : {true, false}) {
    RecordingSink sink;
    const Bytes payload = Payload(1, 150'000);
    sink.Add(Shape::kContiguous, payload.size()).keep_sums = true;
    Feed feed(&sink);
    ASSERT_TRUE(feed.Send(Joined(FramesOf({1, 0}, payload, 7000,
                                          [&](ItemMeta& meta) {
                                            if (!sender_sums) meta.sums = {};
                                          })))
                    .ok());
    EXPECT_EQ(sink.log().back(), "received 1/0 150000 intact");
    EXPECT_EQ(sink.place(0).sums, SumsOf(payload));
  }
}

// Three sums would be computed for a range of two chunks' length that is not aligned.
TEST(FrameReaderTest, APartOfAPayloadIsNotTakenForAWholeOne) {
  constexpr size_t kBytes = 2 * kChunkBytes;
  const PayloadRange ranges[] = {
      {1, kBytes, kBytes + 1}, {0, kBytes, kBytes + 1}, {kChunkBytes, kBytes, 3 * kChunkBytes}};
  for (const PayloadRange& range : ranges) {
    RecordingSink sink;
    RecordingSink::Place& place = sink.Add(Shape::kContiguous, kBytes);
    place.keep_sums = true;
    Feed feed(&sink);
    const std::string stream = Joined(FramesOf({1, 0}, Payload(1, kBytes), 5000, [&](ItemMeta& meta) {
      meta.range = range;
      meta.sums = {};
    }));
    ASSERT_TRUE(feed.Send(stream).ok());
    EXPECT_EQ(sink.log().back(), "broken 1/0 wrong size");
    EXPECT_EQ(place.sums, std::vector<uint64_t>(2)) << "sums of what is not received";
  }
}

TEST(FrameReaderTest, WhatIsAbandonedIsNotWrittenAgain) {
  TestRandom random;
  const Bytes payload = Payload(1, 200'000);
  for (int round = 0; round < 50; ++round) {
    RecordingSink sink;
    RecordingSink::Place& doomed = sink.Add(Shape::kStrided8K, payload.size());
    sink.Add(Shape::kStrided8K, payload.size());
    Feed feed(&sink);
    const std::string stream = Joined(FramesOf({1, 0}, payload, 30'000));
    const size_t cut = random.Between(1, stream.size() - 1);
    ASSERT_TRUE(feed.Send(stream.substr(0, cut)).ok());
    feed.reader.Abandon(2);
    feed.reader.Abandon(1);
    doomed.buffer.memory().Lock();
    ASSERT_TRUE(feed.Send(stream.substr(cut) + Joined(FramesOf({1, 1}, payload))).ok());
    doomed.buffer.memory().Unlock();
    // Before its header was whole, the item had not begun, and was not abandoned.
    if (cut >= kHeaderBytes) {
      EXPECT_THAT(sink.log(), ElementsAre("find 1/0", "find 1/1", "received 1/1 200000 intact")) << "cut " << cut;
    }
    EXPECT_TRUE(doomed.buffer.GapsIntact());
    EXPECT_TRUE(sink.place(1).buffer.Holds(payload));
  }
}

FrameHeader DataHeader(uint64_t offset, uint32_t payload_bytes, uint32_t meta_bytes, uint32_t item = 0) {
  return {FrameType::kData, {1, item}, offset, payload_bytes, meta_bytes};
}

TEST(FrameReaderTest, MalformedStreamsEndWithAnErrorAndWriteNothingElsewhere) {
  constexpr size_t kBytes = 10'000;
  const Bytes payload = Payload(1, kBytes);
  const std::vector<std::string> frames = FramesOf({1, 0}, payload, 4000);
  const std::string filler(300'000, 'x');
  const auto meta_changed = [&](auto change) { return FramesOf({1, 0}, payload, 4000, change)[0] + filler; };
  struct {
    const char* what;
    std::string stream;
    const char* message;
  } const cases[] = {
      {"random", std::string(100, '\xA7'), "frame type"},
      {"type of the future", HeaderOf({FrameType{4}, {1, 0}, 0, 0, 0}), "frame type"},
      {"oversized payload", HeaderOf(DataHeader(0, kMaxFramePayload + 1, 48)) + filler, "payload_bytes"},
      {"oversized metadata", HeaderOf(DataHeader(0, 100, kMaxMetaBytes + 8)) + filler, "meta_bytes"},
      {"first frame without metadata", HeaderOf(DataHeader(0, 100, 0)) + filler, "meta_bytes"},
      {"continues what never began", HeaderOf(DataHeader(4000, 100, 0)) + filler, "not what is being received"},
      {"continues another item", frames[0] + HeaderOf(DataHeader(4000, 100, 0, 1)) + filler,
       "not what is being received"},
      {"leaves a gap", frames[0] + frames[2], "not what is being received"},
      {"repeats a frame", frames[0] + frames[1] + frames[1], "not what is being received"},
      {"continues a whole item", Joined(frames) + HeaderOf(DataHeader(10'000, 1, 0)) + filler,
       "not what is being received"},
      {"goes beyond the end", frames[0] + frames[1] + HeaderOf(DataHeader(8000, 2001, 0)) + filler, "beyond the end"},
      {"first frame longer than its range", meta_changed([](ItemMeta& meta) {
         meta.range = {0, 3999, kBytes};
       }),
       "beyond the end"},
      {"range outside of the payload", meta_changed([](ItemMeta& meta) { meta.range.offset = 1; }), "range_offset"},
      {"payload larger than any", meta_changed([](ItemMeta& meta) { meta.range.payload_bytes = kMaxShardBytes + 1; }),
       "payload_bytes"},
      {"sums of another length", meta_changed([](ItemMeta& meta) { meta.range.payload_bytes = 100'000; }),
       "chunk sums"},
      {"an item that is not expected", Joined(FramesOf({1, 7}, payload)), "request 1 has no item 7"},
      {"a request that is not expected", Joined(FramesOf({3, 0}, payload)), "request 3 has no item 0"},
      {"a signal with data", HeaderOf({FrameType::kPull, {1, 0}, 0, 5, 0}) + filler, "payload_bytes"},
  };
  for (const auto& c : cases) {
    for (bool byte_by_byte : {false, true}) {
      SCOPED_TRACE(c.what);
      RecordingSink sink;
      sink.Add(Shape::kStrided8K, kBytes);
      sink.Add(Shape::kStrided8K, kBytes);
      Feed feed(&sink);
      const absl::Status status = feed.Send(c.stream, [&] { return byte_by_byte ? size_t{1} : size_t{1} << 30; });
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
      EXPECT_TRUE(sink.place(0).buffer.GapsIntact());
      EXPECT_TRUE(sink.place(1).buffer.Untouched());
    }
  }
}

TEST(FrameReaderTest, AStreamThatEndsAnywhereReceivesNothingMore) {
  const Bytes payload = Payload(1, 5000);
  const std::string stream = Joined(FramesOf({1, 0}, payload, 2000));
  for (size_t end = 0; end < stream.size(); end += end < 200 ? 1 : 97) {
    RecordingSink sink;
    sink.Add(Shape::kOdd, payload.size());
    Feed feed(&sink);
    if (end > 0) {
      ASSERT_TRUE(feed.Send(stream.substr(0, end)).ok());
    }
    EXPECT_EQ(feed.Close().code(), absl::StatusCode::kUnavailable);
    for (const std::string& line : sink.log()) EXPECT_EQ(line, "find 1/0");
    EXPECT_TRUE(sink.place(0).buffer.GapsIntact());
  }
}

TEST(FrameReaderTest, ItemsOfTheWrongSizeNeverLeaveTheirBuffer) {
  for (size_t sent : {size_t{1}, size_t{9999}, size_t{10'001}, size_t{262'144}, size_t{500'000}}) {
    for (size_t frame : {size_t{1000}, kMaxFramePayload}) {
      RecordingSink sink;
      sink.Add(Shape::kStrided8K, 10'000);
      const Bytes next = Payload(2, 10'000);
      sink.Add(Shape::kStrided8K, next.size());
      Feed feed(&sink);
      ASSERT_TRUE(feed.Send(Joined(FramesOf({1, 0}, Payload(1, sent), frame)) + Joined(FramesOf({1, 1}, next))).ok());
      EXPECT_THAT(sink.log(),
                  ElementsAre("find 1/0", "broken 1/0 wrong size", "find 1/1", "received 1/1 10000 intact"));
      EXPECT_TRUE(sink.place(0).buffer.GapsIntact());
      EXPECT_TRUE(sink.place(1).buffer.Holds(next));
    }
  }
}

}  // namespace
}  // namespace quarry::transport::tcp
