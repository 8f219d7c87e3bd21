#include "server/event_log.h"

#include <gtest/gtest.h>

#include <thread>

namespace quarry::server {
namespace {

BlockEvent Event(uint32_t ns, const std::string& hash) {
  BlockEvent event;
  event.ns = ns;
  event.SetHash(hash);
  return event;
}

std::vector<BlockEvent> ReadAll(const EventLog& log, uint64_t after, uint64_t* lost = nullptr) {
  std::vector<BlockEvent> events;
  const uint64_t gone = log.Read(after, 1000, &events);
  if (lost != nullptr) *lost = gone;
  return events;
}

TEST(EventLogTest, EventsAreNumberedFromOneAndReadBehindANumber) {
  EventLog log(8);
  EXPECT_EQ(log.last(), 0u);
  EXPECT_TRUE(ReadAll(log, 0).empty());
  for (const char* hash : {"a", "b", "c"}) log.Append(Event(0, hash));
  EXPECT_EQ(log.last(), 3u);
  const auto events = ReadAll(log, 1);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].number, 2u);
  EXPECT_EQ(events[0].hash(), "b");
  EXPECT_EQ(events[1].hash(), "c");
  EXPECT_TRUE(ReadAll(log, 3).empty());
}

TEST(EventLogTest, AReadTakesNoMoreThanAskedFor) {
  EventLog log(8);
  for (const char* hash : {"a", "b", "c"}) log.Append(Event(0, hash));
  std::vector<BlockEvent> events;
  EXPECT_EQ(log.Read(0, 2, &events), 0u);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events.back().number, 2u);
}

TEST(EventLogTest, TheNewestPushOutTheOldestAndTheReaderIsToldHowMany) {
  EventLog log(4);
  for (int i = 1; i <= 10; ++i) log.Append(Event(0, std::to_string(i)));
  uint64_t lost = 0;
  auto events = ReadAll(log, 2, &lost);
  EXPECT_EQ(lost, 4u);  // 3 to 6
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].hash(), "7");
  events = ReadAll(log, 6, &lost);
  EXPECT_EQ(lost, 0u);
  EXPECT_EQ(events.size(), 4u);
}

TEST(EventLogTest, AClearedIndexHasNoEventsBehindItsClearing) {
  EventLog log(8);
  log.Append(Event(1, "before"));
  log.AppendCleared(1);
  log.AppendCleared(1);
  log.Append(Event(1, "behind"));
  log.Append(Event(2, "other"));
  const auto events = ReadAll(log, 0);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1].kind, BlockEvent::Kind::kCleared);
  EXPECT_EQ(events[2].hash(), "other");
  EXPECT_TRUE(log.IsCleared(1));
  EXPECT_FALSE(log.IsCleared(2));
}

TEST(EventLogTest, ListenersAreToldOnceForManyEventsAndNotForNone) {
  struct Counter : EventLog::Listener {
    void OnEvents() override { ++calls; }
    int calls = 0;
  } counter;
  EventLog log(4);
  log.Add(&counter);
  log.Tell();
  EXPECT_EQ(counter.calls, 0);
  for (int i = 0; i < 10; ++i) log.Append(Event(0, "x"));
  log.Tell();
  log.Tell();
  EXPECT_EQ(counter.calls, 1);
  log.Remove(&counter);
  log.Append(Event(0, "x"));
  log.Tell();
  EXPECT_EQ(counter.calls, 1);
}

TEST(EventLogTest, LivesHaveDifferentEpochs) { EXPECT_NE(EventLog(1).epoch(), EventLog(1).epoch()); }

TEST(EventLogTest, AReaderAmongWritersSeesEveryNumberOnceOrIsToldOfTheLoss) {
  constexpr uint64_t kEach = 20'000;
  EventLog log(256);
  std::vector<std::thread> writers;
  for (uint32_t w = 0; w < 3; ++w) {
    writers.emplace_back([&log, w] {
      for (uint64_t i = 0; i < kEach; ++i) log.Append(Event(w, std::to_string(i)));
    });
  }
  uint64_t seen = 0;
  std::vector<BlockEvent> events;
  while (seen < 3 * kEach) {
    seen += log.Read(seen, 64, &events);
    for (const BlockEvent& event : events) ASSERT_EQ(event.number, ++seen);
  }
  for (std::thread& writer : writers) writer.join();
}

}  // namespace
}  // namespace quarry::server
