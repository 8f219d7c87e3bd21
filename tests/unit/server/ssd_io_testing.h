// What the tests of server/ssd/io share: a file, memory for direct IO, requests, and threads
// that may not call everything.
#ifndef QUARRY_TESTS_UNIT_SERVER_SSD_IO_TESTING_H_
#define QUARRY_TESTS_UNIT_SERVER_SSD_IO_TESTING_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/net/socket.h"
#include "server/ssd/io/io_engine.h"

namespace quarry::server {

constexpr size_t kTestPage = 4096;

// A file without a name, of the given size; open with O_DIRECT where the file system takes it.
UniqueFd MakeFile(uint64_t bytes);
// The same file for reading alone, without O_DIRECT.
UniqueFd ReopenForReading(const UniqueFd& file);
// Its bytes as another process would see them.
std::string Contents(const UniqueFd& file, uint64_t offset, size_t bytes);

// Memory that begins at a page, zeroed.
class Pages {
 public:
  explicit Pages(size_t pages);
  // In which each word says where it is and which seed it is from.
  Pages(size_t pages, uint64_t seed);

  char* data() const { return data_.get(); }
  size_t bytes() const { return bytes_; }
  iovec Part(size_t page, size_t pages) const { return {data() + page * kTestPage, pages * kTestPage}; }
  std::string Text() const { return {data(), bytes_}; }

 private:
  struct Free {
    void operator()(char* memory) const;
  };
  std::unique_ptr<char, Free> data_;
  size_t bytes_;
};

IoRequest Read(int fd, uint64_t offset, const std::vector<iovec>& parts, std::function<void(int64_t)> done = {});
IoRequest Write(int fd, uint64_t offset, const std::vector<iovec>& parts, std::function<void(int64_t)> done = {});
IoRequest Sync(int fd, std::function<void(int64_t)> done = {});

// Submits it with a `done` of its own, and waits for that.
int64_t Result(IoEngine* engine, IoRequest request);

// Many requests' results, by number. Thread-safe.
class Results {
 public:
  explicit Results(size_t count) : promises_(count) {
    for (auto& promise : promises_) futures_.push_back(promise.get_future());
  }
  // For a `done`; a second call of it ends the test's process.
  std::function<void(int64_t)> Take(size_t i) {
    return [this, i](int64_t result) { promises_[i].set_value(result); };
  }
  // Waits.
  std::vector<int64_t> All() {
    std::vector<int64_t> results;
    for (auto& future : futures_) results.push_back(future.get());
    return results;
  }

 private:
  std::vector<std::promise<int64_t>> promises_;
  std::vector<std::future<int64_t>> futures_;
};

// Runs `body` in a thread in which, and in whose threads, the kernel answers the system calls
// with `error`, as the seccomp profiles of container runtimes do.
void WithoutCalls(const std::vector<int>& calls, int error, const std::function<void()>& body);

}  // namespace quarry::server

#endif  // QUARRY_TESTS_UNIT_SERVER_SSD_IO_TESTING_H_
