// The program of plain sockets and direct IO, as quarry-bench runs it. Not how fast: that it works.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <tuple>

#include "tools/bench/child_process.h"
#include "tools/bench/scratch_dir.h"

namespace quarry::bench {
namespace {

constexpr int kLimitTimeoutMs = 60'000;

nlohmann::json RunOnce(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), QUARRY_BENCH_LIMIT);
  auto child = ChildProcess::Start(arguments);
  if (!child.ok()) return {};
  const auto ready = (*child)->ReadLine(kLimitTimeoutMs);
  if (!ready.ok() || ready->rfind("ready", 0) != 0) return {};
  for (int round = 0; round < 2; ++round) {
    if (!(*child)->WriteLine("0.02").ok()) return {};
    const auto line = (*child)->ReadLine(kLimitTimeoutMs);
    if (!line.ok()) return {};
    if (round == 0) continue;
    // Exits by itself, and cleanly, when its input ends.
    return (*child)->Finish(kLimitTimeoutMs).ok() ? nlohmann::json::parse(*line, nullptr, false) : nlohmann::json();
  }
  return {};
}

class StreamLimit : public testing::TestWithParam<const char*> {};

TEST_P(StreamLimit, MovesBytes) {
  const auto json = RunOnce({"stream", "--op", GetParam(), "--block", "256KiB", "--segment", "16KiB", "--server-arena",
                             "16MiB", "--client-arena", "8MiB", "--connections", "2", "--buffer", "262144"});
  ASSERT_TRUE(json.is_object());
  EXPECT_GT(json["gb_per_s"].get<double>(), 0);
  EXPECT_EQ(json["buffer_bytes"], 262144);
}

INSTANTIATE_TEST_SUITE_P(, StreamLimit, testing::Values("get", "put"),
                         [](const auto& tested) { return std::string(tested.param); });

class DiskLimit : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(DiskLimit, MovesBytesAndLeavesNothingBehind) {
  auto dir = ScratchDir::Create("/var/tmp");
  ASSERT_TRUE(dir.ok()) << dir.status();
  const auto [op, io] = GetParam();
  const auto json = RunOnce({"disk", "--op", op, "--io", io, "--dir", (*dir)->path(), "--block", "64KiB", "--total",
                             "8MiB", "--file", "4MiB", "--depth", "4"});
  ASSERT_TRUE(json.is_object());
  EXPECT_GT(json["gb_per_s"].get<double>(), 0);
  EXPECT_TRUE(json["io"] == "libaio" || (json["io"] == "io_uring" && std::string(io) == "auto")) << json;
  EXPECT_TRUE(std::filesystem::is_empty((*dir)->path()));
}

INSTANTIATE_TEST_SUITE_P(, DiskLimit,
                         testing::Combine(testing::Values("read", "write"), testing::Values("auto", "libaio")),
                         [](const auto& tested) {
                           return std::string(std::get<0>(tested.param)) + "_" + std::get<1>(tested.param);
                         });

TEST(EchoLimit, MeasuresRoundTrips) {
  const auto json = RunOnce({"echo", "--request", "16384", "--reply", "560", "--connections", "2"});
  ASSERT_TRUE(json.is_object());
  EXPECT_GT(json["ops"].get<uint64_t>(), 0);
  EXPECT_GT(json["p50_us"].get<double>(), 0);
  EXPECT_GE(json["p99_us"].get<double>(), json["p50_us"].get<double>());
}

}  // namespace
}  // namespace quarry::bench
