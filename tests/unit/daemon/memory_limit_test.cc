#include "server/memory_limit.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace quarry::server {
namespace {

class MemoryLimitTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/quarry-limit-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    root_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  std::string root_;
};

constexpr char kMeminfo[] = "MemTotal:       1048576 kB\nMemFree:          1024 kB\n";

TEST_F(MemoryLimitTest, IsTheMachinesMemoryWithoutControlGroups) {
  Write("/proc/meminfo", kMeminfo);
  EXPECT_EQ(MemoryLimitBytes(root_).value(), 1ull << 30);
}

TEST_F(MemoryLimitTest, IsTheLeastLimitUpTheHierarchyOfVersion2) {
  Write("/proc/meminfo", kMeminfo);
  Write("/proc/self/cgroup", "0::/pods/one\n");
  Write("/sys/fs/cgroup/pods/one/memory.max", "max\n");
  EXPECT_EQ(MemoryLimitBytes(root_).value(), 1ull << 30);
  Write("/sys/fs/cgroup/pods/memory.max", "268435456\n");
  EXPECT_EQ(MemoryLimitBytes(root_).value(), 256u << 20);
  Write("/sys/fs/cgroup/pods/one/memory.max", "134217728\n");
  EXPECT_EQ(MemoryLimitBytes(root_).value(), 128u << 20);
}

TEST_F(MemoryLimitTest, ReadsTheMountsRootWhereTheGroupIsNotVisible) {
  Write("/proc/meminfo", kMeminfo);
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", "134217728\n");
  EXPECT_EQ(MemoryLimitBytes(root_).value(), 128u << 20);
}

TEST_F(MemoryLimitTest, ReadsVersion1) {
  Write("/proc/meminfo", kMeminfo);
  Write("/proc/self/cgroup", "5:cpu,memory:/docker/x\n3:cpuset:/docker/x\n");
  Write("/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "134217728\n");
  EXPECT_EQ(MemoryLimitBytes(root_).value(), 128u << 20);
  Write("/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(MemoryLimitBytes(root_).value(), 1ull << 30);
}

TEST_F(MemoryLimitTest, FailsWhereNothingSays) { EXPECT_FALSE(MemoryLimitBytes(root_).ok()); }

}  // namespace
}  // namespace quarry::server
