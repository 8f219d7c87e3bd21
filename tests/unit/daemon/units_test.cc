#include "common/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace quarry::server {
namespace {

TEST(ParseBytesTest, ReadsBinaryDecimalAndBareSizes) {
  EXPECT_EQ(ParseBytes("0").value(), 0u);
  EXPECT_EQ(ParseBytes("4096").value(), 4096u);
  EXPECT_EQ(ParseBytes("7B").value(), 7u);
  EXPECT_EQ(ParseBytes("64KiB").value(), 65536u);
  EXPECT_EQ(ParseBytes("8GiB").value(), 8ull << 30);
  EXPECT_EQ(ParseBytes("3TiB").value(), 3ull << 40);
  EXPECT_EQ(ParseBytes("2MB").value(), 2'000'000u);
  EXPECT_EQ(ParseBytes("5kB").value(), 5'000u);
  EXPECT_EQ(ParseBytes("1.5GiB").value(), 3ull << 29);
  EXPECT_EQ(ParseBytes("8 GiB").value(), 8ull << 30);
}

TEST(ParseBytesTest, KeepsEveryDigitOfWholeNumbers) {
  EXPECT_EQ(ParseBytes("18446744073709551615").value(), std::numeric_limits<uint64_t>::max());
}

TEST(ParseBytesTest, SaysWhatIsWrong) {
  for (const char* text : {"", "GiB", "-1GiB", " 1GiB", "1.2.3GiB", "."}) {
    const auto result = ParseBytes(text);
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_THAT(std::string(result.status().message()), testing::HasSubstr("does not start with a number")) << text;
  }
  for (const char* text : {"1G", "1gib", "1GiBs", "1 GiB ", "1ms"}) {
    const auto result = ParseBytes(text);
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_THAT(std::string(result.status().message()), testing::HasSubstr("unknown unit")) << text;
  }
  for (const char* text : {"18446744073709551616", "16777216TiB", "99999999.5TiB"}) {
    EXPECT_FALSE(ParseBytes(text).ok()) << text;
  }
}

TEST(FormatBytesTest, UsesTheGreatestUnitThatFits) {
  EXPECT_EQ(FormatBytes(0), "0B");
  EXPECT_EQ(FormatBytes(1023), "1023B");
  EXPECT_EQ(FormatBytes(65536), "64KiB");
  EXPECT_EQ(FormatBytes(3ull << 29), "1.5GiB");
  EXPECT_EQ(FormatBytes((10ull << 20) + (1 << 19) / 5), "10.1MiB");
}

TEST(ParseDurationTest, ReadsEveryUnit) {
  EXPECT_EQ(ParseDuration("0").value(), 0);
  EXPECT_EQ(ParseDuration("15ns").value(), 15);
  EXPECT_EQ(ParseDuration("15us").value(), 15'000);
  EXPECT_EQ(ParseDuration("250ms").value(), 250'000'000);
  EXPECT_EQ(ParseDuration("1.5s").value(), 1'500'000'000);
  EXPECT_EQ(ParseDuration("2m").value(), 120'000'000'000);
  EXPECT_EQ(ParseDuration("1h").value(), 3'600'000'000'000);
}

TEST(ParseDurationTest, WantsAUnit) {
  const auto result = ParseDuration("10");
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(std::string(result.status().message()), testing::HasSubstr("has no unit"));
  EXPECT_FALSE(ParseDuration("10 parsecs").ok());
  EXPECT_FALSE(ParseDuration("9999999h").ok());
}

TEST(FormatDurationTest, UsesTheGreatestUnitThatFits) {
  EXPECT_EQ(FormatDuration(0), "0ns");
  EXPECT_EQ(FormatDuration(250'000'000), "250ms");
  EXPECT_EQ(FormatDuration(1'250'000), "1.25ms");
  EXPECT_EQ(FormatDuration(90'000'000'000), "90s");
  EXPECT_EQ(FormatDuration(-1'000), "-1us");
}

}  // namespace
}  // namespace quarry::server
