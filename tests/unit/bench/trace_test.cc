#include "tools/bench/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace quarry::bench {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

absl::StatusOr<std::vector<TraceRequest>> Parse(const std::string& text, size_t max_requests = 0) {
  std::istringstream in(text);
  return ParseTrace(in, max_requests);
}

constexpr char kGood[] = R"({"timestamp": 5, "input_length": 600, "output_length": 9, "hash_ids": [3, 4]})";

TEST(Trace, ReadsRequests) {
  const auto trace = Parse(std::string(kGood) + "\n\n" + kGood);
  ASSERT_TRUE(trace.ok()) << trace.status();
  ASSERT_EQ(trace->size(), 2);
  EXPECT_EQ((*trace)[0].timestamp_ms, 5);
  EXPECT_EQ((*trace)[0].input_tokens, 600);
  EXPECT_THAT((*trace)[0].blocks, ElementsAre(3, 4));
}

TEST(Trace, ReadsOnlyTheFirst) { EXPECT_EQ(Parse(std::string(kGood) + "\n" + kGood, 1)->size(), 1); }

TEST(Trace, TokensOfALastBlockThatIsPartial) {
  const auto trace = Parse(kGood);
  EXPECT_EQ(TokensOf((*trace)[0], 0), 0);
  EXPECT_EQ(TokensOf((*trace)[0], 1), 512);
  EXPECT_EQ(TokensOf((*trace)[0], 2), 600);
}

struct BadLine {
  const char* name;
  const char* line;
  const char* says;
};

class BadTrace : public testing::TestWithParam<BadLine> {};

TEST_P(BadTrace, ErrorNamesTheLineAndTheFault) {
  const auto trace = Parse(std::string(kGood) + "\n" + GetParam().line + "\n");
  ASSERT_TRUE(absl::IsInvalidArgument(trace.status())) << GetParam().line;
  EXPECT_THAT(std::string(trace.status().message()), AllOf(HasSubstr("line 2"), HasSubstr(GetParam().says)));
}

INSTANTIATE_TEST_SUITE_P(
    Trace, BadTrace,
    testing::Values(
        BadLine{"CutOff", "{", "JSON"}, BadLine{"NoObject", "[1]", "JSON object"},
        BadLine{"NoTimestamp", R"({"input_length": 5, "hash_ids": [1]})", "timestamp"},
        BadLine{"NegativeTimestamp", R"({"timestamp": -1, "input_length": 5, "hash_ids": [1]})", "timestamp"},
        BadLine{"HalfATokenOfInput", R"({"timestamp": 5, "input_length": 1.5, "hash_ids": [1]})", "input_length"},
        BadLine{"NoHashIds", R"({"timestamp": 5, "input_length": 5})", "hash_ids"},
        BadLine{"EmptyHashIds", R"({"timestamp": 5, "input_length": 5, "hash_ids": []})", "hash_ids"},
        BadLine{"TextForAHashId", R"({"timestamp": 5, "input_length": 5, "hash_ids": ["a"]})", "hash_ids"},
        BadLine{"TooFewHashIds", R"({"timestamp": 5, "input_length": 513, "hash_ids": [1]})", "does not fit"},
        BadLine{"TooManyHashIds", R"({"timestamp": 5, "input_length": 512, "hash_ids": [1, 2]})", "does not fit"},
        BadLine{"TimeRunsBackwards", R"({"timestamp": 4, "input_length": 5, "hash_ids": [1]})", "backwards"}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST(Trace, AnEmptyOneIsAnError) { EXPECT_TRUE(absl::IsInvalidArgument(Parse("").status())); }

TEST(Trace, AMissingFileIsNamed) {
  const auto trace = ReadTrace("/no/such/trace.jsonl");
  EXPECT_TRUE(absl::IsNotFound(trace.status()));
  EXPECT_THAT(std::string(trace.status().message()), HasSubstr("/no/such/trace.jsonl"));
}

}  // namespace
}  // namespace quarry::bench
