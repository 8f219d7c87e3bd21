// A client without GPU memory pays nothing for it: libcuda is not even loaded, though it could be.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "tests/integration/peer.h"
#include "tests/integration/private_server.h"

namespace quarry::testing {
namespace {

bool LibcudaIsMapped() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("libcuda") != std::string::npos) return true;
  }
  return false;
}

int Threads() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("Threads:", 0) == 0) return std::stoi(line.substr(8));
  }
  return 0;
}

TEST(ClientGpuAbsentTest, NeitherLibcudaNorAThreadNorARingWithoutGpuMemory) {
  // It is there to be loaded: a child does so.
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(dlopen("libcuda.so.1", RTLD_NOW) != nullptr && LibcudaIsMapped() ? 0 : 1);
  int loaded = -1;
  ASSERT_EQ(waitpid(child, &loaded, 0), child);
  ASSERT_EQ(loaded, 0) << "the fake libcuda cannot be found, so that this test would show nothing";
  ASSERT_FALSE(LibcudaIsMapped());

  const PrivateServer server("256MiB");
  ClientOptions options;
  options.gpu_staging_bytes = uint64_t{64} << 30;  // more than there is
  const Peer peer(server.address(), PlainSpec(100'000), options);
  const int threads = Threads();
  Batch blocks(peer, 1, 10);
  EXPECT_TRUE(blocks.Put().ok());
  int no_stream = 0;
  EXPECT_TRUE(blocks.ComesBack({.gpu_stream = &no_stream}));  // not looked at
  EXPECT_FALSE(LibcudaIsMapped());
  EXPECT_EQ(Threads(), threads);
}

}  // namespace
}  // namespace quarry::testing
