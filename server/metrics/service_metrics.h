// What the front ends count; the block store keeps its own counters (StoreStats). Both are
// read at scrape time by server/metrics/exporter.cc. All members are thread-safe and cost
// an atomic addition or two.
#ifndef QUARRY_SERVER_METRICS_SERVICE_METRICS_H_
#define QUARRY_SERVER_METRICS_SERVICE_METRICS_H_

#include <array>
#include <atomic>
#include <cstdint>

#include "common/clock.h"
#include "common/load_advice.h"
#include "common/transfer_rate.h"
#include "common/transport/transport.h"
#include "server/metrics/histogram.h"

namespace quarry::server {

using Count = std::atomic<uint64_t>;

// What clients ask for, over either front end.
enum class Op : uint8_t {
  kMatch,
  kGet,
  kPut,
  kFetch,
  kOpenNamespace,
  kTouch,
  kRenewLease,
  kReleaseLease,
  kLookup,
  kRemove,
  kList,
  kStats,
  kWatch,  // counted when it begins, and not timed: it lasts as long as its client wants
  kGetConfig,
  kListNamespaces,
  kSetNamespaceTtl,
  kFlushNamespace,
  kRetireNamespace,
  kPin,
  kUnpin,
  kWarm,
  kDrain,
  kSetLogLevel,
  kGetHealth,
  kGetSsd,
};
inline constexpr int kOps = 25;
const char* Name(Op op);

// Why a connection or a session was turned away.
enum class SessionRefusal : uint8_t {
  kHandshake,       // not our protocol, another version, too slow
  kTooMany,         // sessions, handshakes or data streams
  kDraining,        // or ending
  kCredential,      // not valid here
  kUnknownSession,  // of a data stream
};
inline constexpr int kSessionRefusals = 5;
const char* Name(SessionRefusal refusal);

inline constexpr int kTransferStatuses = 5;
const char* Name(transport::TransferStatus status);

// Transfers in one direction: items between slots and clients' buffers.
struct TransferMetrics {
  SizeHistogram bytes;       // of those that ended well
  LatencyHistogram latency;  // from the start to the end, of those
  std::array<Count, kTransferStatuses> ended{};

  void Ended(transport::TransferStatus status, uint64_t payload_bytes, int64_t duration_ns) {
    ended[static_cast<size_t>(status)].fetch_add(1, std::memory_order_relaxed);
    if (status != transport::TransferStatus::kOk) return;
    bytes.Record(static_cast<int64_t>(payload_bytes));
    latency.Record(duration_ns);
  }
};

// What carries payload between the node and its clients.
enum class Via : uint8_t { kTcp, kGrpc, kShm, kUcx };
inline constexpr int kVias = 4;
inline Via ViaOf(transport::Carrier carrier) {
  switch (carrier) {
    case transport::Carrier::kTcp:
      return Via::kTcp;
    case transport::Carrier::kShm:
      return Via::kShm;
    case transport::Carrier::kUcx:
      return Via::kUcx;
  }
  return Via::kTcp;
}
const char* Name(Via via);

struct ServiceMetrics {
  std::array<LatencyHistogram, kOps> latency;  // from the message's receipt to its last answer
  std::array<Count, kOps> requests{};
  std::array<Count, kOps> errors{};                             // answered by an error
  std::array<std::array<TransferMetrics, 2>, kVias> transfers;  // by Via and transport::Transfer::Kind
  // Of gets, from receipt to last answer: those from memory alone, and those in which blocks came
  // from an SSD. By LoadTier.
  std::array<TransferRate, kLoadTiers> get_rates;
  Count delivered_items{0};  // confirmed by clients
  Count delivered_bytes{0};
  Count corrupt_items{0};  // reported by clients
  Count sessions{0};       // open now
  Count sessions_total{0};
  std::array<Count, kSessionRefusals> sessions_refused{};
  Count transfers_queued{0};  // now, in the scheduler
  Count bytes_in_flight{0};   // now, started and not finished

  TransferMetrics& transfers_of(transport::Transfer::Kind kind, Via via = Via::kTcp) {
    return transfers[static_cast<size_t>(via)][static_cast<size_t>(kind)];
  }
  void Refused(SessionRefusal why) {
    sessions_refused[static_cast<size_t>(why)].fetch_add(1, std::memory_order_relaxed);
  }
  void Failed(Op op) { errors[static_cast<size_t>(op)].fetch_add(1, std::memory_order_relaxed); }
};

// Counts and times, while it lives, an operation that is answered at once.
class OpTimer {
 public:
  OpTimer(ServiceMetrics* metrics, Op op) : metrics_(metrics), op_(static_cast<size_t>(op)) {
    metrics_->requests[op_].fetch_add(1, std::memory_order_relaxed);
  }
  ~OpTimer() { metrics_->latency[op_].Record(Clock::Real()->NowNs() - begin_ns_); }
  OpTimer(const OpTimer&) = delete;
  OpTimer& operator=(const OpTimer&) = delete;

 private:
  ServiceMetrics* const metrics_;
  const size_t op_;
  const int64_t begin_ns_ = Clock::Real()->NowNs();
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_METRICS_SERVICE_METRICS_H_
