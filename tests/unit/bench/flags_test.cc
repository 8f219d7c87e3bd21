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

TEST(GrpcFlags, PartsAreChosenByNameAndErrorsNameTheFlag) {
  const auto parse = [](std::vector<std::string> arguments, ParsedGrpc* parsed) -> std::string {
    CLI::App app;
    AddGrpcFlags(&app, parsed);
    std::reverse(arguments.begin(), arguments.end());
    try {
      app.parse(arguments);
      FinishGrpc(parsed);
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    return "";
  };
  ParsedGrpc all;
  EXPECT_EQ(parse({}, &all), "");
  EXPECT_TRUE(all.options.match && all.options.get && all.options.put && all.options.observers);
  EXPECT_TRUE(all.options.scrape);
  ParsedGrpc some;
  EXPECT_EQ(parse({"--part", "get,observers", "--watchers", "0", "--no-scrape", "--block", "64KiB"}, &some), "");
  EXPECT_TRUE(some.options.get && some.options.observers);
  EXPECT_FALSE(some.options.match || some.options.put || some.options.scrape);
  EXPECT_EQ(some.options.block_bytes, 64 << 10);
  const auto refused = [&](std::vector<std::string> arguments) {
    ParsedGrpc bad;
    return parse(std::move(arguments), &bad);
  };
  EXPECT_THAT(refused({"--part", "all"}), HasSubstr("--part"));
  EXPECT_THAT(refused({"--block", "7"}), HasSubstr("--block"));
  EXPECT_THAT(refused({"--blocks", "100", "--hashes", "512"}), HasSubstr("--blocks"));
  EXPECT_THAT(refused({"--watchers", "257"}), HasSubstr("--watchers"));
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

TEST(TransferFlags, OnAnSsdTheWorkingSetIsSeveralTimesTheMemoryUnlessTold) {
  ParsedTransfer parsed;
  EXPECT_EQ(ParseTransfer({"--tier", "ssd", "--ssd-dir", "/d", "--ssd-io", "libaio"}, &parsed), "");
  EXPECT_EQ(parsed.options.tier, Tier::kSsd);
  EXPECT_EQ(parsed.options.server.ssd_dir, "/d");
  EXPECT_EQ(parsed.options.server.ssd_io, "libaio");
  EXPECT_GE(parsed.options.working_set_bytes, 4 * parsed.options.server.memory_bytes);
  EXPECT_GT(parsed.options.server.ssd_bytes, parsed.options.working_set_bytes);
  EXPECT_EQ(parsed.options.disk_depth, 8);
  ParsedTransfer told;
  EXPECT_EQ(ParseTransfer({"--tier", "ssd", "--ssd-dir", "/d", "--memory", "256MiB", "--working-set", "1GiB",
                           "--ssd-size", "3GiB", "--block", "64KiB"},
                          &told),
            "");
  EXPECT_EQ(told.options.server.memory_bytes, 256 << 20);
  EXPECT_EQ(told.options.working_set_bytes, 1 << 30);
  EXPECT_EQ(told.options.server.ssd_bytes, uint64_t{3} << 30);
  EXPECT_EQ(told.options.disk_depth, 32);
}

TEST(TransferFlags, WhatDoesNotGoWithAnSsdIsNamed) {
  const auto refused = [](std::vector<std::string> arguments) {
    ParsedTransfer parsed;
    return ParseTransfer(std::move(arguments), &parsed);
  };
  EXPECT_THAT(refused({"--tier", "ssd"}), HasSubstr("--ssd-dir"));
  EXPECT_THAT(refused({"--ssd-dir", "/d"}), HasSubstr("--tier ssd"));
  EXPECT_THAT(refused({"--tier", "ssd", "--ssd-dir", "/d", "--op", "match"}), HasSubstr("--op match"));
  EXPECT_THAT(refused({"--tier", "ssd", "--ssd-dir", "/d", "--server", "h:1"}), HasSubstr("--server"));
  EXPECT_THAT(refused({"--tier", "tape", "--ssd-dir", "/d"}), HasSubstr("--tier"));
  EXPECT_THAT(refused({"--tier", "ssd", "--ssd-dir", "/d", "--ssd-io", "mmap"}), HasSubstr("--ssd-io"));
  EXPECT_THAT(refused({"--tier", "ssd", "--ssd-dir", "/d", "--ssd-size", "1GiB"}), HasSubstr("--ssd-size"));
  EXPECT_THAT(refused({"--tier", "ssd", "--ssd-dir", "/d", "--memory", "1GiB", "--working-set", "1GiB"}),
              HasSubstr("--working-set"));
}

TEST(SpillLoadFlags, NeedAnSsdAndMemoryForTwiceWhatIsHot) {
  const auto parse = [](std::vector<std::string> arguments, ParsedSpillLoad* parsed) -> std::string {
    CLI::App app;
    AddSpillLoadFlags(&app, parsed);
    std::reverse(arguments.begin(), arguments.end());
    try {
      app.parse(arguments);
      FinishSpillLoad(parsed);
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    return "";
  };
  ParsedSpillLoad parsed;
  EXPECT_EQ(parse({"--ssd-dir", "/d", "--ssd-size", "1GiB", "--memory", "512MiB", "--hot", "256MiB", "--step", "500ms",
                   "--rounds", "5", "--put-batch", "4", "--ssd-io", "threads"},
                  &parsed),
            "");
  EXPECT_EQ(parsed.options.server.ssd_dir, "/d");
  EXPECT_EQ(parsed.options.server.ssd_bytes, 1 << 30);
  EXPECT_EQ(parsed.options.hot_bytes, 256 << 20);
  EXPECT_EQ(parsed.options.step_ns, 500'000'000);
  EXPECT_EQ(parsed.options.rounds, 5);
  EXPECT_EQ(parsed.options.put_batch, 4);
  EXPECT_TRUE(parsed.options.checksum);
  const auto refused = [&](std::vector<std::string> arguments) {
    ParsedSpillLoad bad;
    return parse(std::move(arguments), &bad);
  };
  EXPECT_THAT(refused({}), HasSubstr("--ssd-dir"));
  EXPECT_THAT(refused({"--ssd-dir", "/d", "--memory", "512MiB", "--hot", "257MiB"}), HasSubstr("--hot"));
  EXPECT_THAT(refused({"--ssd-dir", "/d", "--block", "12"}), HasSubstr("--block"));
  EXPECT_THAT(refused({"--ssd-dir", "/d", "--segment", "12"}), HasSubstr("--segment"));
  EXPECT_THAT(refused({"--ssd-dir", "/d", "--step", "0s"}), HasSubstr("--step"));
  EXPECT_THAT(refused({"--ssd-dir", "/d", "--rounds", "0"}), HasSubstr("--rounds"));
  EXPECT_THAT(refused({"--ssd-dir", "/d", "--server", "h:1"}), HasSubstr("--server"));
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

TEST(ReplayFlags, AnSsdHasASizeAndMayHaveABudget) {
  ParsedReplay parsed;
  EXPECT_EQ(ParseReplay({"--trace", "t", "--ssd-dir", "/d", "--ssd-size", "3GiB", "--ssd-write-budget", "2TiB",
                         "--ssd-write-burst", "64MiB", "--ssd-io", "threads"},
                        &parsed),
            "");
  EXPECT_EQ(parsed.options.server.ssd_dir, "/d");
  EXPECT_EQ(parsed.options.server.ssd_bytes, uint64_t{3} << 30);
  EXPECT_EQ(parsed.options.server.ssd_write_budget_bytes, uint64_t{2} << 40);
  EXPECT_EQ(parsed.options.server.ssd_write_burst_bytes, 64 << 20);
  EXPECT_EQ(parsed.options.server.ssd_io, "threads");
  const auto refused = [](std::vector<std::string> arguments) {
    ParsedReplay bad;
    arguments.insert(arguments.begin(), {"--trace", "t"});
    return ParseReplay(std::move(arguments), &bad);
  };
  EXPECT_THAT(refused({"--ssd-dir", "/d"}), HasSubstr("--ssd-size"));
  EXPECT_THAT(refused({"--ssd-size", "3GiB"}), HasSubstr("--ssd-dir"));
  EXPECT_THAT(refused({"--ssd-write-budget", "3GiB"}), HasSubstr("--ssd-dir"));
  EXPECT_THAT(refused({"--ssd-dir", "/d", "--ssd-size", "3GiB", "--ssd-write-burst", "1GiB"}),
              HasSubstr("--ssd-write-budget"));
  EXPECT_THAT(refused({"--ssd-dir", "/d", "--ssd-size", "3GiB", "--server", "h:1"}), HasSubstr("--server"));
}

TEST(ReplayFlags, ATraceIsRequired) {
  ParsedReplay parsed;
  EXPECT_THAT(ParseReplay({}, &parsed), HasSubstr("--trace"));
  EXPECT_THAT(ParseReplay({"--trace", "t", "--block-bytes", "65537"}, &parsed), HasSubstr("--block-bytes"));
}

}  // namespace
}  // namespace quarry::bench
