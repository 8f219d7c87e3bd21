// Against a server of one page, which the test writes.
#include "tools/bench/spill_pace.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/net/socket.h"

namespace quarry::bench {
namespace {

class Page {
 public:
  Page() {
    auto listener = ListenTcp({"127.0.0.1", 0}, &bound_);
    if (!listener.ok()) std::abort();
    listener_ = *std::move(listener);
    thread_ = std::thread([this] { Serve(); });
  }
  ~Page() {
    stopping_ = true;
    thread_.join();
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", bound_.port); }
  void Spilled(uint64_t records) { records_ = records; }
  void Lost(uint64_t blocks) { lost_ = blocks; }
  void Fail() { failing_ = true; }

 private:
  void Serve() {
    while (!stopping_) {
      pollfd waited = {listener_.get(), POLLIN, 0};
      if (poll(&waited, 1, 5) <= 0) continue;
      const UniqueFd fd(accept(listener_.get(), nullptr, nullptr));
      char request[4096];
      if (!fd || recv(fd.get(), request, sizeof request, 0) <= 0) continue;
      const std::string answer = absl::StrCat("HTTP/1.1 ", failing_ ? "500 No" : "200 OK",
                                              "\r\n\r\nquarry_ssd_spilled_records_total{dir=\"d\"} ", records_.load(),
                                              "\nquarry_ssd_spilled_bytes_total{dir=\"d\"} ", records_.load() * 100,
                                              "\nquarry_unspilled_blocks_total ", lost_.load(), "\n");
      send(fd.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    }
  }

  HostPort bound_;
  UniqueFd listener_;
  std::atomic<uint64_t> records_{0}, lost_{0};
  std::atomic<bool> failing_{false}, stopping_{false};
  std::thread thread_;
};

TEST(SpillPace, LetsInNoMoreThanMemoryHoldsBesidesWhatIsSpilled) {
  Page page;
  auto pace = SpillPace::Start(page.address(), 10);
  ASSERT_TRUE(pace.ok()) << pace.status();
  EXPECT_TRUE((*pace)->Take(6, false));
  EXPECT_FALSE((*pace)->Take(6, false));
  EXPECT_TRUE((*pace)->Take(4, false));
  page.Spilled(5);
  EXPECT_TRUE((*pace)->Take(5, true));
  EXPECT_FALSE((*pace)->Take(1, false));
  // What was lost takes no room either.
  page.Lost(2);
  EXPECT_TRUE((*pace)->Take(2, true));
  page.Spilled(15);
  EXPECT_TRUE((*pace)->Take(10, true));
  page.Spilled(25);
  EXPECT_TRUE((*pace)->Take(8, true));
}

TEST(SpillPace, ASpanLiesBetweenTheFirstAndTheLastCommitSeen) {
  Page page;
  auto pace = SpillPace::Start(page.address(), 10);
  ASSERT_TRUE(pace.ok()) << pace.status();
  page.Spilled(1);
  EXPECT_TRUE((*pace)->Take(11, true));
  (*pace)->BeginSpan();
  for (uint64_t records : {4, 6, 9}) {
    page.Spilled(records);
    EXPECT_TRUE((*pace)->Take(records == 4 ? 3 : records == 6 ? 2 : 3, true));
  }
  const SpillPace::Span span = (*pace)->EndSpan();
  EXPECT_EQ(span.bytes, 500);
  EXPECT_GT(span.ns, 0);
  // Nothing was committed in this one.
  (*pace)->BeginSpan();
  EXPECT_EQ((*pace)->EndSpan().ns, 0);
}

TEST(SpillPace, WhoeverWaitsIsToldOfAnError) {
  Page page;
  auto pace = SpillPace::Start(page.address(), 1);
  ASSERT_TRUE(pace.ok()) << pace.status();
  page.Fail();
  EXPECT_FALSE((*pace)->Take(2, true));
  EXPECT_FALSE((*pace)->status().ok());
}

}  // namespace
}  // namespace quarry::bench
