#include "tests/unit/server/ssd_io_testing.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"

namespace quarry::server {
namespace {

UniqueFd Reopen(const UniqueFd& file, int flags) {
  return UniqueFd(open(absl::StrCat("/proc/self/fd/", file.get()).c_str(), flags | O_CLOEXEC));
}

IoRequest MakeRequest(IoRequest::Kind kind, int fd, uint64_t offset, const std::vector<iovec>& parts,
                      std::function<void(int64_t)> done) {
  return {.kind = kind,
          .fd = fd,
          .offset = offset,
          .parts = std::vector<iovec>(parts.begin(), parts.end()),
          .done = std::move(done)};
}

}  // namespace

UniqueFd MakeFile(uint64_t bytes) {
  std::string path = ::testing::TempDir() + "ssd_io_XXXXXX";
  UniqueFd file(mkstemp(path.data()));
  EXPECT_TRUE(file) << path;
  EXPECT_EQ(unlink(path.c_str()), 0);
  EXPECT_EQ(ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
  UniqueFd direct = Reopen(file, O_RDWR | O_DIRECT);
  return direct ? std::move(direct) : std::move(file);
}

UniqueFd ReopenForReading(const UniqueFd& file) { return Reopen(file, O_RDONLY); }

std::string Contents(const UniqueFd& file, uint64_t offset, size_t bytes) {
  const UniqueFd buffered = ReopenForReading(file);
  std::string contents(bytes, '\0');
  EXPECT_EQ(pread(buffered.get(), contents.data(), bytes, static_cast<off_t>(offset)), static_cast<ssize_t>(bytes));
  return contents;
}

void Pages::Free::operator()(char* memory) const { std::free(memory); }

Pages::Pages(size_t pages)
    : data_(static_cast<char*>(std::aligned_alloc(kTestPage, pages * kTestPage))), bytes_(pages * kTestPage) {
  std::memset(data(), 0, bytes_);
}

Pages::Pages(size_t pages, uint64_t seed) : Pages(pages) {
  for (uint64_t at = 0; at < bytes_; at += sizeof(at)) {
    const uint64_t word = seed << 32 | at;
    std::memcpy(data() + at, &word, sizeof(word));
  }
}

IoRequest Read(int fd, uint64_t offset, const std::vector<iovec>& parts, std::function<void(int64_t)> done) {
  return MakeRequest(IoRequest::Kind::kRead, fd, offset, parts, std::move(done));
}

IoRequest Write(int fd, uint64_t offset, const std::vector<iovec>& parts, std::function<void(int64_t)> done) {
  return MakeRequest(IoRequest::Kind::kWrite, fd, offset, parts, std::move(done));
}

IoRequest Sync(int fd, std::function<void(int64_t)> done) {
  return MakeRequest(IoRequest::Kind::kSync, fd, 0, {}, std::move(done));
}

int64_t Result(IoEngine* engine, IoRequest request) {
  Results results(1);
  request.done = results.Take(0);
  engine->Submit(std::move(request));
  return results.All().front();
}

void WithoutCalls(const std::vector<int>& calls, int error, const std::function<void()>& body) {
  // The tests' process makes calls of its own architecture only, so that is not looked at.
  std::vector<sock_filter> filter = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const int call : calls) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  std::thread([&] {
    sock_fprog program = {.len = static_cast<uint16_t>(filter.size()), .filter = filter.data()};
    ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ASSERT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0) << std::strerror(errno);
    body();
  }).join();
}

}  // namespace quarry::server
