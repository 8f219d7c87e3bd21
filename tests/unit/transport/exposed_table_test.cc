#include "common/transport/exposed_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/unit/transport/items.h"

namespace quarry::transport {
namespace {

TEST(ExposedTableTest, OnlyWhatIsExposedCanBeUsed) {
  ExposedTable table;
  EXPECT_EQ(table.BeginUse(1), nullptr);
  auto request = std::make_shared<TestRequest>();
  table.Expose(1, request);
  EXPECT_EQ(table.BeginUse(2), nullptr);
  EXPECT_EQ(table.BeginUse(1), request);
  table.EndUse(1);
  table.Withdraw(1);
  EXPECT_EQ(table.BeginUse(1), nullptr);
  EXPECT_EQ(request.use_count(), 1);
  EXPECT_EQ(table.ReleaseWhenUnused(1, [] { FAIL(); }), Release::kReleased);
}

TEST(ExposedTableTest, TheEndOfTheLastUseReleases) {
  ExposedTable table;
  auto request = std::make_shared<TestRequest>();
  table.Expose(1, request);
  ASSERT_NE(table.BeginUse(1), nullptr);
  ASSERT_NE(table.BeginUse(1), nullptr);
  table.Withdraw(1);
  EXPECT_EQ(table.BeginUse(1), nullptr);
  int released = 0;
  EXPECT_EQ(table.ReleaseWhenUnused(1, [&] { ++released; }), Release::kHeld);
  table.EndUse(1);
  EXPECT_EQ(released, 0);
  table.EndUse(1);
  EXPECT_EQ(released, 1);
  EXPECT_EQ(request.use_count(), 1);
  EXPECT_EQ(table.ReleaseWhenUnused(1, [] { FAIL(); }), Release::kReleased) << "nothing is left of it";
}

TEST(ExposedTableTest, WithdrawingWhatIsNotThereIsNoError) {
  ExposedTable table;
  table.Withdraw(7);
  EXPECT_EQ(table.ReleaseWhenUnused(7, [] { FAIL(); }), Release::kReleased);
}

// Uses begin and end on other threads while requests are withdrawn: after the release,
// however it came, none is left.
TEST(ExposedTableTest, NothingIsUsedAfterItsRelease) {
  ExposedTable table;
  constexpr uint64_t kRequests = 2000;
  std::vector<std::atomic<int>> uses(kRequests + 1);
  std::vector<std::atomic<bool>> released(kRequests + 1);
  std::atomic<uint64_t> current{1};
  std::vector<std::thread> users;
  for (int i = 0; i < 2; ++i) {
    users.emplace_back([&] {
      while (current <= kRequests) {
        const uint64_t id = current;
        if (id > kRequests || table.BeginUse(id) == nullptr) continue;
        ++uses[id];
        EXPECT_FALSE(released[id]);
        --uses[id];
        table.EndUse(id);
      }
    });
  }
  std::atomic<uint64_t> releases{0};
  for (uint64_t id = 1; id <= kRequests; ++id) {
    table.Expose(id, std::make_shared<TestRequest>());
    current = id;
    if (id % 3 == 0) std::this_thread::yield();
    table.Withdraw(id);
    const auto on_release = [&, id] {
      EXPECT_EQ(uses[id], 0);
      released[id] = true;
      ++releases;
    };
    if (table.ReleaseWhenUnused(id, on_release) == Release::kReleased) on_release();
  }
  current = kRequests + 1;
  for (std::thread& user : users) user.join();
  EXPECT_EQ(releases, kRequests);
}

}  // namespace
}  // namespace quarry::transport
