// Each check on fake trees and fake answers of the kernel, in every state that it has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "tools/quarryctl/doctor/check.h"
#include "tools/quarryctl/doctor/doctor_command.h"

namespace quarry::ctl {
namespace {

using testing::HasSubstr;

class DoctorTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/quarry-doctor-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    fake_.root = pattern;
    fake_.probes = {.io_uring = [] { return 0; },
                    .aio = [] { return 0; },
                    .process_vm = [] { return 0; },
                    .file_system_bytes = [](const std::string&) { return std::optional<uint64_t>(8ull << 30); }};
  }
  void TearDown() override { std::filesystem::remove_all(fake_.root); }

  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = fake_.root + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }

  // State and finding as one text; advice goes with every state but ok.
  static std::string Said(const CheckResult& result) {
    EXPECT_EQ(result.advice.empty(), result.state == CheckState::kOk) << result.name;
    return Name(result.state) + ": " + result.finding;
  }

  Host fake_;
};

TEST_F(DoctorTest, LockedMemory) {
  Write("/proc/self/limits", "Limit  Soft Limit  Hard Limit  Units\nMax locked memory  8388608  8388608  bytes");
  EXPECT_EQ(Said(CheckLockedMemory(fake_)), "warn: at most 8MiB may be locked");
  Write("/proc/self/limits", "Max locked memory  unlimited  unlimited  bytes");
  EXPECT_EQ(Said(CheckLockedMemory(fake_)), "ok: memory may be locked without limit");
  Write("/proc/self/limits", "");
  EXPECT_THAT(Said(CheckLockedMemory(fake_)), HasSubstr("warn: /proc/self/limits does not say"));
}

TEST_F(DoctorTest, TransparentHugePages) {
  const std::string file = "/sys/kernel/mm/transparent_hugepage/enabled";
  EXPECT_THAT(Said(CheckTransparentHugePages(fake_)), HasSubstr("warn: the kernel has none"));
  Write(file, "always [madvise] never");
  EXPECT_EQ(Said(CheckTransparentHugePages(fake_)), "ok: mode madvise");
  Write(file, "always madvise [never]");
  EXPECT_EQ(Said(CheckTransparentHugePages(fake_)), "warn: mode never");
}

TEST_F(DoctorTest, ReservedHugePages) {
  Write("/proc/meminfo", "HugePages_Total:       0\nHugePages_Free:        0\nHugepagesize:       2048 kB");
  EXPECT_EQ(Said(CheckReservedHugePages(fake_)), "ok: none; the arena uses transparent ones");
  Write("/proc/meminfo", "HugePages_Total:       8\nHugePages_Free:        5\nHugepagesize:       2048 kB");
  EXPECT_EQ(Said(CheckReservedHugePages(fake_)), "warn: 8 of 2MiB, 5 of them unused");
  EXPECT_THAT(CheckReservedHugePages(fake_).advice, HasSubstr("10MiB"));
  Write("/proc/meminfo", "HugePages_Total:       8\nHugePages_Free:        0\nHugepagesize:       2048 kB");
  EXPECT_EQ(Said(CheckReservedHugePages(fake_)), "ok: 8 of 2MiB, 0 of them unused");
}

TEST_F(DoctorTest, SharedMemory) {
  EXPECT_EQ(Said(CheckSharedMemory(fake_)), "ok: 8GiB");
  fake_.probes.file_system_bytes = [this](const std::string& path) {
    EXPECT_EQ(path, fake_.root + "/dev/shm");
    return std::optional<uint64_t>(64 << 20);
  };
  EXPECT_EQ(Said(CheckSharedMemory(fake_)), "warn: 64MiB");
  fake_.probes.file_system_bytes = [](const std::string&) { return std::nullopt; };
  EXPECT_EQ(Said(CheckSharedMemory(fake_)), "warn: not there");
}

TEST_F(DoctorTest, Numa) {
  EXPECT_EQ(Said(CheckNuma(fake_)), "ok: the kernel shows no nodes");
  Write("/sys/devices/system/node/online", "0");
  EXPECT_EQ(Said(CheckNuma(fake_)), "ok: 1 node");
  Write("/sys/devices/system/node/online", "0-1,4");
  EXPECT_EQ(Said(CheckNuma(fake_)), "warn: 3 nodes: 0-1,4");
}

TEST_F(DoctorTest, Seccomp) {
  EXPECT_EQ(Said(CheckSeccomp(fake_)), "ok: the kernel does not say");
  Write("/proc/self/status", "Name:\tx\nSeccomp:\t0\nSeccomp_filters:\t0");
  EXPECT_EQ(Said(CheckSeccomp(fake_)), "ok: no filter");
  Write("/proc/self/status", "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1");
  EXPECT_THAT(Said(CheckSeccomp(fake_)), HasSubstr("ok: a filter decides"));
}

TEST_F(DoctorTest, IoUring) {
  EXPECT_EQ(Said(CheckIoUring(fake_)), "ok: io_uring_setup works");
  fake_.probes.io_uring = [] { return EPERM; };
  EXPECT_EQ(Said(CheckIoUring(fake_)), "warn: io_uring_setup: Operation not permitted");
  EXPECT_THAT(CheckIoUring(fake_).advice, HasSubstr("seccomp profile"));
  Write("/proc/sys/kernel/io_uring_disabled", "2");
  EXPECT_THAT(CheckIoUring(fake_).advice, HasSubstr("kernel.io_uring_disabled is 2"));
  fake_.probes.io_uring = [] { return ENOSYS; };
  EXPECT_THAT(CheckIoUring(fake_).advice, HasSubstr("the kernel has none"));
}

TEST_F(DoctorTest, Aio) {
  EXPECT_EQ(Said(CheckAio(fake_)), "ok: io_setup works");
  fake_.probes.aio = [] { return EPERM; };
  EXPECT_EQ(Said(CheckAio(fake_)), "warn: io_setup: Operation not permitted");
  fake_.probes.aio = [] { return EAGAIN; };
  EXPECT_THAT(CheckAio(fake_).advice, HasSubstr("fs.aio-max-nr"));
}

TEST_F(DoctorTest, ProcessVm) {
  EXPECT_EQ(Said(CheckProcessVm(fake_)), "ok: reading a child's memory works");
  Write("/proc/sys/kernel/yama/ptrace_scope", "1");
  EXPECT_THAT(Said(CheckProcessVm(fake_)), HasSubstr("warn: reading a child's memory works, but"));
  fake_.probes.process_vm = [] { return EPERM; };
  EXPECT_EQ(Said(CheckProcessVm(fake_)), "warn: reading a child's memory: Operation not permitted");
}

TEST_F(DoctorTest, Rdma) {
  EXPECT_EQ(Said(CheckRdma(fake_)), "ok: no devices; bytes go over TCP");
  Write("/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
  EXPECT_EQ(Said(CheckRdma(fake_)), "ok: 1 devices: mlx5_0");
  Write("/sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN");
  EXPECT_EQ(Said(CheckRdma(fake_)), "warn: 2 devices: mlx5_0, mlx5_1");
  EXPECT_THAT(CheckRdma(fake_).advice, HasSubstr("no active port: mlx5_1"));
}

TEST_F(DoctorTest, SocketBuffers) {
  EXPECT_THAT(Said(CheckSocketBuffers(fake_)), HasSubstr("warn: net.core.rmem_max and wmem_max are not visible"));
  Write("/proc/sys/net/core/rmem_max", "4194304");
  Write("/proc/sys/net/core/wmem_max", "212992");
  EXPECT_EQ(Said(CheckSocketBuffers(fake_)), "warn: receive up to 4MiB, send up to 208KiB");
  Write("/proc/sys/net/core/wmem_max", "4194304");
  EXPECT_EQ(Said(CheckSocketBuffers(fake_)), "ok: receive up to 4MiB, send up to 4MiB");
}

TEST_F(DoctorTest, MemoryLimitOfVersion2IsTheLeastUpTheHierarchy) {
  EXPECT_THAT(Said(CheckMemoryLimit(fake_)), HasSubstr("warn: neither"));
  Write("/proc/meminfo", "MemTotal:       1048576 kB");
  EXPECT_EQ(Said(CheckMemoryLimit(fake_)), "ok: none; the machine has 1GiB");
  Write("/proc/self/cgroup", "0::/pods/one");
  Write("/sys/fs/cgroup/pods/one/memory.max", "max");
  Write("/sys/fs/cgroup/pods/memory.max", "536870912");
  EXPECT_EQ(Said(CheckMemoryLimit(fake_)), "ok: 512MiB by control group, of the machine's 1GiB");
  Write("/sys/fs/cgroup/pods/one/memory.max", "67108864");
  EXPECT_THAT(Said(CheckMemoryLimit(fake_)), HasSubstr("bad: 64MiB by control group"));
}

TEST_F(DoctorTest, MemoryLimitOfVersion1) {
  Write("/proc/meminfo", "MemTotal:       1048576 kB");
  Write("/proc/self/cgroup", "5:cpu,memory:/docker/x\n3:cpuset:/docker/x");
  Write("/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(Said(CheckMemoryLimit(fake_)), "ok: none; the machine has 1GiB");
  Write("/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "268435456");
  EXPECT_EQ(Said(CheckMemoryLimit(fake_)), "ok: 256MiB by control group, of the machine's 1GiB");
}

TEST_F(DoctorTest, CpuLimit) {
  EXPECT_EQ(Said(CheckCpuLimit(fake_)), "ok: none");
  Write("/proc/self/cgroup", "0::/pods/one");
  Write("/sys/fs/cgroup/pods/one/cpu.max", "max 100000");
  EXPECT_EQ(Said(CheckCpuLimit(fake_)), "ok: none");
  Write("/sys/fs/cgroup/pods/cpu.max", "400000 100000");
  EXPECT_EQ(Said(CheckCpuLimit(fake_)), "ok: 4 CPUs by control group");
  Write("/sys/fs/cgroup/pods/one/cpu.max", "150000 100000");
  EXPECT_EQ(Said(CheckCpuLimit(fake_)), "warn: 1.5 CPUs by control group");
}

TEST_F(DoctorTest, CpuLimitOfVersion1) {
  Write("/proc/self/cgroup", "1:cpu,cpuacct:/x");
  Write("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1");
  Write("/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000");
  EXPECT_EQ(Said(CheckCpuLimit(fake_)), "ok: none");
  Write("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "50000");
  EXPECT_EQ(Said(CheckCpuLimit(fake_)), "warn: 0.5 CPUs by control group");
}

TEST_F(DoctorTest, ABadCheckIsTheAnswerNo) {
  Write("/proc/meminfo", "MemTotal:       1048576 kB");
  GlobalOptions globals;
  globals.json = true;
  const CLI::App program;
  std::ostringstream out;
  EXPECT_EQ(DoctorCommand(fake_).Run({globals, program, out}).value(), ExitCode::kOk);
  EXPECT_EQ(nlohmann::json::parse(out.str())["healthy"], true);
  Write("/proc/self/cgroup", "0::/");
  Write("/sys/fs/cgroup/memory.max", "1048576");
  out.str("");
  EXPECT_EQ(DoctorCommand(fake_).Run({globals, program, out}).value(), ExitCode::kNo);
  EXPECT_EQ(nlohmann::json::parse(out.str())["healthy"], false);
}

TEST(DoctorProbesTest, OfThisMachineAnswer) {
  const Host here{.root = "", .probes = RealProbes()};
  std::set<std::string> names;
  for (const CheckResult& result : RunChecks(here)) {
    EXPECT_FALSE(result.finding.empty()) << result.name;
    EXPECT_EQ(result.advice.empty(), result.state == CheckState::kOk) << result.name;
    names.insert(result.name);
  }
  EXPECT_EQ(names.size(), 13u);
  // Not EBADMSG or ECHILD: either the child's bytes came, or the kernel said no.
  EXPECT_THAT(here.probes.process_vm(), testing::AnyOf(0, EPERM, ENOSYS, EACCES));
  EXPECT_GT(here.probes.file_system_bytes("/tmp").value(), 0u);
  EXPECT_EQ(here.probes.file_system_bytes("/no/such/place"), std::nullopt);
}

}  // namespace
}  // namespace quarry::ctl
