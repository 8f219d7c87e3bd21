#include "tests/fakes/fake_disk.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <functional>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/ssd/aligned_buffer.h"
#include "server/ssd/record_header.h"

namespace quarry::fakes {
namespace {

using server::AlignedBuffer;
using server::IoRequest;
using server::kPageBytes;

std::string PathOf(int fd) { return std::filesystem::read_symlink(absl::StrCat("/proc/self/fd/", fd)).string(); }

uint64_t Bytes(const IoRequest& request) {
  uint64_t bytes = 0;
  for (const iovec& part : request.parts) bytes += part.iov_len;
  return bytes;
}

void CutShort(IoRequest* request, uint64_t most_bytes) {
  for (iovec& part : request->parts) {
    part.iov_len = std::min<uint64_t>(part.iov_len, most_bytes);
    most_bytes -= part.iov_len;
  }
  while (request->parts.size() > 1 && request->parts.back().iov_len == 0) request->parts.pop_back();
}

}  // namespace

// The real engine, and a thread that answers what does not get to it.
class FakeDisk::Engine final : public server::IoEngine {
 public:
  Engine(FakeDisk* disk, std::unique_ptr<IoEngine> real)
      : disk_(disk), real_(std::move(real)), thread_([this] { Run(); }) {}
  ~Engine() override {
    Post(nullptr);
    thread_.join();
  }

  absl::string_view name() const override { return real_->name(); }
  uint32_t depth() const override { return real_->depth(); }
  void Submit(IoRequest request) override { disk_->Take(this, std::move(request)); }

  IoEngine* real() { return real_.get(); }
  void Answer(IoRequest request, int64_t result) {
    Post([done = std::move(request.done), result] { done(result); });
  }

 private:
  void Post(std::function<void()> call) {
    std::lock_guard<std::mutex> lock(mutex_);
    calls_.push_back(std::move(call));
    changed_.notify_one();
  }
  void Run() {
    while (true) {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return !calls_.empty(); });
      const std::function<void()> call = std::move(calls_.front());
      calls_.pop_front();
      lock.unlock();
      if (!call) return;
      call();
    }
  }

  FakeDisk* const disk_;
  const std::unique_ptr<IoEngine> real_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> calls_;
  std::thread thread_;
};

class FakeDisk::Files final : public server::ExtentFiles {
 public:
  Files(FakeDisk* disk, std::string dir, std::unique_ptr<ExtentFiles> real)
      : disk_(disk), dir_(std::move(dir)), real_(std::move(real)) {}

  absl::StatusOr<std::vector<Found>> List() override { return real_->List(); }
  absl::StatusOr<UniqueFd> Open(uint32_t number) override { return real_->Open(number); }
  absl::StatusOr<UniqueFd> Create(uint32_t number, uint64_t bytes) override {
    if (absl::Status status = disk_->BeforeCreate(); !status.ok()) return status;
    const std::string path = PathOf(number);
    disk_->Forget(path);
    if (disk_->power_ == nullptr) return real_->Create(number, bytes);
    {
      const UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
      if (!fd) return absl::ErrnoToStatus(errno, path);
      if (const int failed = posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes)); failed != 0) {
        return absl::ErrnoToStatus(failed, path);
      }
    }
    return real_->Open(number);
  }
  absl::Status Remove(uint32_t number) override {
    if (disk_->power_ != nullptr && !disk_->power_->on()) return absl::ErrnoToStatus(EIO, "no power");
    disk_->Forget(PathOf(number));
    return real_->Remove(number);
  }
  bool direct() const override { return real_->direct(); }

 private:
  std::string PathOf(uint32_t number) const { return absl::StrFormat("%s/%08u.extent", dir_, number); }

  FakeDisk* const disk_;
  const std::string dir_;
  const std::unique_ptr<ExtentFiles> real_;
};

void FakeDisk::Attach(const std::string& dir, server::SsdDiskOptions* options) {
  options->wrap_io = [this](std::unique_ptr<server::IoEngine> real) {
    return std::make_unique<Engine>(this, std::move(real));
  };
  options->wrap_files = [this, dir = dir + "/extents"](std::unique_ptr<server::ExtentFiles> real) {
    return std::make_unique<Files>(this, dir, std::move(real));
  };
}

// ------------------------------------------------------------ what a test says

void FakeDisk::Fail(Kind kind, int error, uint64_t from, uint64_t count) {
  std::lock_guard<std::mutex> lock(mutex_);
  faults(kind).error = error;
  faults(kind).fail_from = faults(kind).requests + from;
  faults(kind).fail_count = count;
}

void FakeDisk::Shorten(Kind kind, uint64_t most_bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  faults(kind).most_bytes = most_bytes;
}

void FakeDisk::Hold(Kind kind) {
  std::lock_guard<std::mutex> lock(mutex_);
  faults(kind).hold = true;
}

void FakeDisk::Release(Kind kind, int error) {
  std::vector<Held> held;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    faults(kind).hold = false;
    held.swap(faults(kind).held);
  }
  for (Held& each : held) {
    if (error == 0) {
      Forward(each.engine, std::move(each.request));
    } else {
      NoteFailed(each.request);
      each.engine->Answer(std::move(each.request), -error);
    }
  }
}

void FakeDisk::FailCreate(absl::Status status) {
  std::lock_guard<std::mutex> lock(mutex_);
  create_status_ = std::move(status);
}

void FakeDisk::Heal() {
  std::lock_guard<std::mutex> lock(mutex_);
  create_status_ = absl::OkStatus();
  for (Faults& each : faults_) {
    each.error = 0;
    each.most_bytes = UINT64_MAX;
  }
}

uint64_t FakeDisk::requests(Kind kind) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return faults(kind).requests;
}

uint64_t FakeDisk::failed(Kind kind) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return faults(kind).failed;
}

uint64_t FakeDisk::held(Kind kind) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return faults(kind).held.size();
}

// ------------------------------------------------------------ requests on their way

int FakeDisk::ErrorOfLocked(const IoRequest& request) {
  if (power_ != nullptr) {
    const bool powered = request.kind == Kind::kSync ? power_->BeforeSync() : power_->on();
    if (!powered) return EIO;
  }
  const Faults& kind = faults(request.kind);
  const bool fails =
      kind.error != 0 && kind.requests >= kind.fail_from && kind.requests - kind.fail_from < kind.fail_count;
  return fails ? kind.error : 0;
}

void FakeDisk::Take(Engine* engine, IoRequest request) {
  int error;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Faults& kind = faults(request.kind);
    ++kind.requests;
    error = ErrorOfLocked(request);
    if (error == 0) {
      CutShort(&request, kind.most_bytes);
      if (kind.hold) {
        kind.held.push_back({engine, std::move(request)});
        return;
      }
    }
  }
  if (error != 0) {
    NoteFailed(request);
    engine->Answer(std::move(request), -error);
  } else {
    Forward(engine, std::move(request));
  }
}

void FakeDisk::NoteFailed(const IoRequest& request) {
  std::lock_guard<std::mutex> lock(mutex_);
  ++faults(request.kind).failed;
  if (request.kind == Kind::kSync) files_[PathOf(request.fd)].ended.clear();
}

void FakeDisk::Forward(Engine* engine, IoRequest request) {
  if (power_ != nullptr && request.kind == Kind::kWrite) TrackWrite(&request);
  if (power_ != nullptr && request.kind == Kind::kSync) {
    CoverBySync(&request);
    return engine->Answer(std::move(request), 0);
  }
  engine->real()->Submit(std::move(request));
}

void FakeDisk::TrackWrite(IoRequest* request) {
  const std::string path = PathOf(request->fd);
  const uint64_t bytes = Bytes(*request);
  const AlignedBuffer before(bytes);
  if (pread(request->fd, before.data(), bytes, static_cast<off_t>(request->offset)) != static_cast<ssize_t>(bytes)) {
    std::abort();
  }
  std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t write = ++writes_;
  for (uint64_t at = 0; at < bytes; at += kPageBytes) {
    files_[path].pages[request->offset + at].push_back(
        {write, std::string(reinterpret_cast<const char*>(before.data()) + at, kPageBytes)});
  }
  request->done = [this, path, write, done = std::move(request->done)](int64_t result) {
    {
      std::lock_guard<std::mutex> ended_lock(mutex_);
      const auto file = files_.find(path);
      if (file != files_.end()) file->second.ended.insert(write);
    }
    done(result);
  };
}

void FakeDisk::CoverBySync(IoRequest* request) {
  std::lock_guard<std::mutex> lock(mutex_);
  File& file = files_[PathOf(request->fd)];
  for (auto& [offset, writes] : file.pages) {
    const auto last = std::find_if(writes.rbegin(), writes.rend(),
                                   [&](const Before& before) { return file.ended.contains(before.write); });
    writes.erase(writes.begin(), last.base());
  }
  std::erase_if(file.pages, [](const auto& page) { return page.second.empty(); });
  file.ended.clear();
}

absl::Status FakeDisk::BeforeCreate() {
  if (power_ != nullptr && !power_->BeforeSync()) return absl::ErrnoToStatus(EIO, "no power");
  std::lock_guard<std::mutex> lock(mutex_);
  return create_status_;
}

void FakeDisk::Forget(const std::string& path) {
  std::lock_guard<std::mutex> lock(mutex_);
  files_.erase(path);
}

// ------------------------------------------------------------ when the power has gone

void FakeDisk::LoseUnsynced(Loss loss, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [path, file] : files_) {
    const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!fd || loss == Loss::kNone) continue;
    for (const auto& [offset, writes] : file.pages) {
      // Which of the states it has had: the last of them is the one that it has.
      const size_t state = loss == Loss::kAll ? 0 : random() % (writes.size() + 1);
      if (state == writes.size()) continue;
      const std::string& bytes = writes[state].bytes;
      if (pwrite(fd.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)) !=
          static_cast<ssize_t>(bytes.size())) {
        std::abort();
      }
    }
  }
  files_.clear();
}

}  // namespace quarry::fakes
