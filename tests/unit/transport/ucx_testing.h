// Ends of the UCX transport that a test speaks for itself.
#ifndef QUARRY_TESTS_UNIT_TRANSPORT_UCX_TESTING_H_
#define QUARRY_TESTS_UNIT_TRANSPORT_UCX_TESTING_H_

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/transport/registry.h"
#include "common/transport/ucx/worker.h"

namespace quarry::transport::ucx {

// QUARRY_TEST_UCX_LIBRARY: of another UCX than the system's.
inline UcxOptions TestUcx() {
  const char* library = std::getenv("QUARRY_TEST_UCX_LIBRARY");
  return {.libucp = library == nullptr ? "" : library, .trusted_fabric = false};
}

template <typename T>
T Require(absl::StatusOr<T> made) {
  if (made.ok()) return *std::move(made);
  std::fprintf(stderr, "%s\n", made.status().ToString().c_str());
  std::abort();
}

// A worker that keeps what it is told and says what it likes.
class RawEnd : public MessageSink {
 public:
  static constexpr uint64_t kToken = 0x7012;

  RawEnd() : worker_(Require(Worker::Create(Require(Context::Create(TestUcx())), &loop_))) {
    loop_.Run([this] { worker_->AddSink(kToken, this); });
  }
  ~RawEnd() override {
    loop_.Run([this] {
      endpoint_.reset();
      worker_->Shutdown();
    });
    worker_.reset();
  }

  EventLoop& loop() { return loop_; }
  Version version() { return Require(LoadApi(TestUcx().libucp))->version; }
  const std::string& address() const { return worker_->address(); }
  void Connect(const std::string& address) {
    loop_.Run([&] { endpoint_ = Require(worker_->Connect(address, [](const absl::Status&) {})); });
  }
  void Send(std::string header, std::vector<std::byte> data = {}) {
    auto kept = std::make_shared<std::vector<std::byte>>(std::move(data));
    loop_.Run([&] {
      std::vector<Segment> segments;
      if (!kept->empty()) segments.push_back({kept->data(), kept->size()});
      worker_->Send(endpoint_, std::move(header), segments, [kept](ucs_status_t) {});
    });
  }
  // The last one since the last call.
  std::optional<Message> Take() {
    std::lock_guard lock(mutex_);
    return std::exchange(last_, std::nullopt);
  }

 private:
  void OnMessage(const Message& message, absl::Span<const std::byte>, Arrival*) override {
    std::lock_guard lock(mutex_);
    last_ = message;
  }
  void OnMalformed(const absl::Status&) override { std::abort(); }

  EventLoop loop_{"t-raw"};
  std::shared_ptr<Worker> worker_;
  std::shared_ptr<Endpoint> endpoint_;
  std::mutex mutex_;
  std::optional<Message> last_;  // guarded by mutex_
};

}  // namespace quarry::transport::ucx

#endif  // QUARRY_TESTS_UNIT_TRANSPORT_UCX_TESTING_H_
