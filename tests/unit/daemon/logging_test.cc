#include "server/logging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

namespace quarry::server {
namespace {

TEST(LoggingTest, JsonEscapesWhatWouldBreakALine) {
  EXPECT_EQ(JsonEscape("plain"), "plain");
  EXPECT_EQ(JsonEscape("a\"b\\c\nd\x01"), "a\\\"b\\\\c\\u000ad\\u0001");
}

TEST(LoggingTest, WritesOneJsonObjectALine) {
  testing::internal::CaptureStderr();
  ConfigureLogging("json", "info");
  spdlog::info("say \"hi\"\n{}", 1);
  spdlog::debug("not logged");
  const std::string out = testing::internal::GetCapturedStderr();
  EXPECT_THAT(out, testing::HasSubstr(R"("level":"info","message":"say \"hi\"\u000a1"})"));
  EXPECT_EQ(out.find('\n'), out.size() - 1);
}

TEST(LoggingTest, TheLevelChangesWhileRunning) {
  testing::internal::CaptureStderr();
  ConfigureLogging("text", "error");
  spdlog::info("first");
  SetLogLevel("info");
  spdlog::info("second");
  const std::string out = testing::internal::GetCapturedStderr();
  EXPECT_THAT(out, testing::Not(testing::HasSubstr("first")));
  EXPECT_THAT(out, testing::HasSubstr("info second\n"));
}

}  // namespace
}  // namespace quarry::server
