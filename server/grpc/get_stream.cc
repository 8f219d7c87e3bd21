#include "server/grpc/get_stream.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "server/grpc/status.h"

namespace quarry::server {

// Thread-safe.
struct GetStream::Loading {
  explicit Loading(GetStream* for_stream) : stream_(for_stream) {}

  void Take(size_t item, ReadResult read) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (reads_.size() <= item) reads_.resize(item + 1);
      reads_[item] = std::move(read);
      ++arrived_;
    }
    TellIfComplete();
  }
  // So many are taken in all.
  void Expect(size_t count) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      expected_ = count;
    }
    TellIfComplete();
  }
  // The stream is not told. False: it is being told, or has been.
  bool Detach() {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(stream_, nullptr) != nullptr;
  }

 private:
  void TellIfComplete() {
    GetStream* told = nullptr;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (arrived_ == expected_) told = std::exchange(stream_, nullptr);
    }
    if (told != nullptr) told->OnLoaded(std::move(reads_));
  }

  std::mutex mutex_;
  GetStream* stream_;  // nullptr: it has been told, or must not be
  std::vector<ReadResult> reads_;
  size_t arrived_ = 0;
  size_t expected_ = SIZE_MAX;
};

GetStream::GetStream(CacheService* service, StreamLimits* limits, grpc::CallbackServerContext* context,
                     const grpc::ByteBuffer& request)
    : service_(service),
      limits_(limits),
      idle_(&limits->idle, context),
      pieces_(service),
      begin_ns_(Clock::Real()->NowNs()) {
  service_->metrics().requests[static_cast<size_t>(Op::kGet)].fetch_add(1, std::memory_order_relaxed);
  if (absl::Status status = Begin(request); !status.ok()) {
    End(status);
    return;
  }
  Continue();
}

absl::Status GetStream::Begin(const grpc::ByteBuffer& request) {
  if (absl::Status status = service_->CheckNotDraining(); !status.ok()) return status;
  admitted_ = limits_->gets.Take(1);
  if (!admitted_) return absl::ResourceExhaustedError(absl::StrCat("gets under way: at most ", limits_->gets.most()));
  return pieces_.Begin(request);
}

void GetStream::Continue() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (cancelled_) {
    lock.unlock();
    return End(idle_.WhyCancelled());
  }
  const GetPieces::Step step = pieces_.Next(&message_);
  if (step == GetPieces::Step::kEnd) {
    lock.unlock();
    return End(pieces_.status());
  }
  if (step == GetPieces::Step::kLoad) {
    lock.unlock();
    return LoadMore();
  }
  writing_ = true;
  idle_.BeginWait(Clock::Real()->NowNs());
  StartWrite(&message_);
}

// The stream may end before what it loads is there: by its deadline, or because the client is
// gone.
void GetStream::LoadMore() {
  const auto loading = std::make_shared<Loading>(this);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    busy_ = true;
    loading_ = loading;
  }
  const size_t count = pieces_.Load([loading](size_t item, ReadResult read) { loading->Take(item, std::move(read)); });
  bool cancelled;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    busy_ = false;
    cancelled = cancelled_;
  }
  if (cancelled) {
    loading->Detach();
    return End(idle_.WhyCancelled());
  }
  // From here on the stream may be gone.
  loading->Expect(count);
}

void GetStream::OnLoaded(std::vector<ReadResult> reads) {
  pieces_.Loaded(std::move(reads));
  {
    std::lock_guard<std::mutex> lock(mutex_);
    loading_ = nullptr;
  }
  Continue();
}

void GetStream::OnWriteDone(bool ok) {
  idle_.EndWait();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    writing_ = false;
    cancelled_ = cancelled_ || !ok;
  }
  Continue();
}

void GetStream::OnCancel() {
  std::shared_ptr<Loading> loading;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    cancelled_ = true;
    if (writing_ || busy_) return;  // OnWriteDone, or the rest of LoadMore, follows
    loading = loading_;
  }
  if (loading != nullptr && !loading->Detach()) return;  // OnLoaded follows
  End(idle_.WhyCancelled());
}

void GetStream::End(const absl::Status& status) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (std::exchange(finished_, true)) return;
  }
  ServiceMetrics& metrics = service_->metrics();
  const auto op = static_cast<size_t>(Op::kGet);
  if (status.ok()) {
    const int64_t elapsed_ns = Clock::Real()->NowNs() - begin_ns_;
    metrics.latency[op].Record(elapsed_ns);
    metrics.get_rates[pieces_.any_loaded() ? 1 : 0].Record(pieces_.sent_bytes(), elapsed_ns);
  } else {
    metrics.errors[op].fetch_add(1, std::memory_order_relaxed);
  }
  Finish(ToGrpc(status));
}

void GetStream::OnDone() {
  if (admitted_) limits_->gets.Give(1);
  delete this;
}

}  // namespace quarry::server
