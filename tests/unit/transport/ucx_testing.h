// Ends of the UCX transport that a test speaks for itself.
#ifndef QUARRY_TESTS_UNIT_TRANSPORT_UCX_TESTING_H_
#define QUARRY_TESTS_UNIT_TRANSPORT_UCX_TESTING_H_

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
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
inline UcxOptions TestUcx(UcxOptions::Rma rma = UcxOptions::Rma::kAuto) {
  const char* library = std::getenv("QUARRY_TEST_UCX_LIBRARY");
  return {.libucp = library == nullptr ? "" : library, .trusted_fabric = false, .rma = rma};
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

  struct Received : Message {
    std::string rest;             // behind the header
    std::vector<std::byte> data;  // if it is short
  };

  explicit RawEnd(const UcxOptions& options = TestUcx())
      : context_(Require(Context::Create(options))), worker_(Require(Worker::Create(context_, &loop_))) {
    loop_.Run([this] { worker_->AddSink(kToken, this); });
  }
  ~RawEnd() override {
    End();
    worker_.reset();
  }
  // It touches nothing any more.
  void End() {
    loop_.Run([this] {
      endpoint_.reset();
      worker_->Shutdown();
    });
    for (ucp_mem_h mapped : std::exchange(mapped_, {})) context_->Unmap(mapped);
  }

  EventLoop& loop() { return loop_; }
  Version version() const { return context_->api().version; }
  const std::string& address() const { return worker_->address(); }
  void Connect(const std::string& address) {
    loop_.Run([&] { endpoint_ = Require(worker_->Connect(address, [](const absl::Status&) {})); });
  }
  void Disconnect() {
    loop_.Run([&] { endpoint_.reset(); });
  }
  void Send(std::string header, std::vector<std::byte> data = {}) {
    auto kept = std::make_shared<std::vector<std::byte>>(std::move(data));
    loop_.Run([&] {
      std::vector<Segment> segments;
      if (!kept->empty()) segments.push_back({kept->data(), kept->size()});
      worker_->Send(endpoint_, std::move(header), segments, [kept](ucs_status_t) {});
    });
  }
  // The oldest that was not taken.
  std::optional<Received> Take() {
    std::lock_guard lock(mutex_);
    if (received_.empty()) return std::nullopt;
    Received taken = std::move(received_.front());
    received_.pop_front();
    return taken;
  }

  // As a client: what it says of memory that a node may reach. Until the end.
  RegionClaim Map(std::byte* base, size_t bytes) {
    void* packed = nullptr;
    size_t packed_bytes = 0;
    const Api& api = context_->api();
    mapped_.push_back(Require(context_->Map({base, bytes})));
    if (api.ucp_rkey_pack(context_->handle(), mapped_.back(), &packed, &packed_bytes) != UCS_OK) {
      std::abort();
    }
    RegionClaim claim{reinterpret_cast<uint64_t>(base), bytes, {static_cast<const char*>(packed), packed_bytes}};
    api.ucp_rkey_buffer_release(packed);
    return claim;
  }
  // As a node: writes to a client's memory. What came of it, once that is known.
  std::shared_ptr<std::atomic<int>> Put(const RegionClaim& claim, uint64_t offset, std::vector<std::byte> data) {
    auto status = std::make_shared<std::atomic<int>>(UCS_INPROGRESS);
    auto kept = std::make_shared<std::vector<std::byte>>(std::move(data));
    loop_.Run([&] {
      const RemoteRun run{Require(worker_->Unpack(endpoint_, claim.packed)), claim.base + offset, kept->size(), 0, 1};
      worker_->Move(Worker::Direction::kPut, endpoint_, kept->data(), absl::MakeConstSpan(&run, 1),
                    [kept, run, status](ucs_status_t ended) { *status = ended; });
    });
    return status;
  }

 private:
  void OnMessage(const Message& message, absl::Span<const std::byte> rest, Arrival* arrival) override {
    constexpr size_t kShort = 64 << 10;
    Received received{message, {reinterpret_cast<const char*>(rest.data()), rest.size()}, {}};
    if (arrival->bytes() > 0 && arrival->bytes() <= kShort) {
      received.data.resize(arrival->bytes());
      const Segment segment{received.data.data(), received.data.size()};
      worker_->Land(arrival, absl::MakeConstSpan(&segment, 1), [](ucs_status_t) {});  // at once
    }
    std::lock_guard lock(mutex_);
    received_.push_back(std::move(received));
  }
  void OnMalformed(const absl::Status&) override { std::abort(); }

  EventLoop loop_{"t-raw"};
  const std::shared_ptr<Context> context_;
  std::shared_ptr<Worker> worker_;
  std::shared_ptr<Endpoint> endpoint_;
  std::vector<ucp_mem_h> mapped_;
  std::mutex mutex_;
  std::deque<Received> received_;  // guarded by mutex_
};

}  // namespace quarry::transport::ucx

#endif  // QUARRY_TESTS_UNIT_TRANSPORT_UCX_TESTING_H_
