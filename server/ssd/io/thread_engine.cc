#include "server/ssd/io/thread_engine.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace quarry::server {
namespace {

int64_t CarryOutOnce(const IoRequest& request) {
  const auto parts = static_cast<int>(request.parts.size());
  const auto offset = static_cast<off_t>(request.offset);
  switch (request.kind) {
    case IoRequest::Kind::kRead:
      return preadv(request.fd, request.parts.data(), parts, offset);
    case IoRequest::Kind::kWrite:
      return pwritev(request.fd, request.parts.data(), parts, offset);
    case IoRequest::Kind::kSync:
      return fdatasync(request.fd);
  }
  return -1;
}

int64_t CarryOut(const IoRequest& request) {
  while (true) {
    const int64_t result = CarryOutOnce(request);
    if (result >= 0) return result;
    if (errno != EINTR) return -errno;
  }
}

}  // namespace

ThreadEngine::ThreadEngine(uint32_t depth, uint32_t max_threads) : depth_(depth) {
  const uint32_t count = std::min(depth, max_threads);
  threads_.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    threads_.emplace_back([this] { Run(); });
    pthread_setname_np(threads_.back().native_handle(), "quarry-io");
  }
}

ThreadEngine::~ThreadEngine() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadEngine::Submit(IoRequest request) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(request));
  }
  wake_.notify_one();
}

void ThreadEngine::Run() {
  while (true) {
    IoRequest request;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      // What a `done` submits from now on is carried out by the thread that called it.
      if (waiting_.empty()) return;
      request = std::move(waiting_.front());
      waiting_.pop_front();
    }
    request.done(CarryOut(request));
  }
}

}  // namespace quarry::server
