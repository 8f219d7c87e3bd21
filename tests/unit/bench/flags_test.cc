#include "tools/bench/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quarry::bench {
namespace {

using testing::HasSubstr;

// The message of the error; empty when there is none.
std::string ParseTransfer(std::vector<std::string> arguments, ParsedTransfer* parsed) {
  CLI::App app;
  AddTransferFlags(&app, parsed);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes vectors
  try {
    app.parse(arguments);
    FinishTransfer(parsed);
  } catch (const CLI::ParseError& error) {
    return error.what();
  }
  return "";
}

std::string ParseReplay(std::vector<std::string> arguments, ParsedReplay* parsed) {
  CLI::App app;
  AddReplayFlags(&app, parsed);
  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(arguments);
    FinishReplay(parsed);
  } catch (const CLI::ParseError& error) {
    return error.what();
  }
  return "";
}

TEST(TransferFlags, ReadSizesAndTimes) {
  ParsedTransfer parsed;
  EXPECT_EQ(
      ParseTransfer({"--op",          "put",       "--transport", "tcp",   "--block",   "2MiB", "--segment",  "64KiB",
                     "--batch",       "32",        "--clients",   "2",     "--streams", "3",    "--duration", "5s",
                     "--no-checksum", "--against", "limit",       "--json"},
                    &parsed),
      "");
  EXPECT_EQ(parsed.options.op, TransferOp::kPut);
  EXPECT_EQ(parsed.options.block_bytes, 2 << 20);
  EXPECT_EQ(parsed.options.segment_bytes, 64 << 10);
  EXPECT_EQ(parsed.options.streams, 3);
  EXPECT_EQ(parsed.options.duration_ns, 5'000'000'000);
  EXPECT_FALSE(parsed.options.checksum);
  EXPECT_TRUE(parsed.options.against_limit);
  EXPECT_TRUE(parsed.json);
}

TEST(TransferFlags, ErrorsNameTheFlag) {
  ParsedTransfer parsed;
  EXPECT_THAT(ParseTransfer({"--block", "2MaB"}, &parsed), HasSubstr("--block"));
  EXPECT_THAT(ParseTransfer({"--duration", "5"}, &parsed), HasSubstr("--duration"));
  EXPECT_THAT(ParseTransfer({"--op", "steal"}, &parsed), HasSubstr("--op"));
  EXPECT_THAT(ParseTransfer({"--against", "redis"}, &parsed), HasSubstr("--against"));
  EXPECT_THAT(ParseTransfer({"--clients", "0"}, &parsed), HasSubstr("--clients"));
  EXPECT_THAT(ParseTransfer({"--blob", "1"}, &parsed), HasSubstr("--blob"));
  EXPECT_THAT(ParseTransfer({"--block", "1GiB"}, &parsed), HasSubstr("--block"));
}

TEST(TransferFlags, AMatchHasOneClientAndRoomForItsBlocksUnlessTold) {
  ParsedTransfer parsed;
  EXPECT_EQ(ParseTransfer({"--op", "match", "--blocks", "1000000"}, &parsed), "");
  EXPECT_EQ(parsed.options.clients, 1);
  EXPECT_GT(parsed.options.server.memory_bytes, uint64_t{1'000'000} * 4096);
  ParsedTransfer told;
  EXPECT_EQ(ParseTransfer({"--op", "match", "--clients", "2", "--memory", "7GiB"}, &told), "");
  EXPECT_EQ(told.options.clients, 2);
  EXPECT_EQ(told.options.server.memory_bytes, uint64_t{7} << 30);
}

TEST(ReplayFlags, ReadTheSpeed) {
  ParsedReplay parsed;
  EXPECT_EQ(ParseReplay({"--trace", "t", "--speed", "10"}, &parsed), "");
  EXPECT_EQ(parsed.options.speed, 10);
  ParsedReplay fastest;
  EXPECT_EQ(ParseReplay({"--trace", "t", "--speed", "max"}, &fastest), "");
  EXPECT_EQ(fastest.options.speed, 0);
  EXPECT_THAT(ParseReplay({"--trace", "t", "--speed", "0"}, &parsed), HasSubstr("--speed"));
  EXPECT_THAT(ParseReplay({"--trace", "t", "--speed", "fast"}, &parsed), HasSubstr("--speed"));
}

TEST(ReplayFlags, ATraceIsRequired) {
  ParsedReplay parsed;
  EXPECT_THAT(ParseReplay({}, &parsed), HasSubstr("--trace"));
  EXPECT_THAT(ParseReplay({"--trace", "t", "--block-bytes", "65537"}, &parsed), HasSubstr("--block-bytes"));
}

}  // namespace
}  // namespace quarry::bench
