#include "server/metrics/sections.h"

namespace quarry::server {
namespace {

using transport::Transfer;
using transport::TransferStatus;

double Load(const Count& count) { return static_cast<double>(count.load(std::memory_order_relaxed)); }

void AddRequests(Families& out, const ServiceMetrics& service) {
  const auto for_each_op = [&](auto&& add) {
    for (int op = 0; op < kOps; ++op) add(op, Labels{{"op", Name(static_cast<Op>(op))}});
  };
  out.Counter("quarry_requests_total", "Requests by operation.");
  for_each_op([&](int op, Labels labels) { out.Add(Load(service.requests[op]), std::move(labels)); });
  out.Counter("quarry_request_errors_total", "Requests that were answered by an error, by operation.");
  for_each_op([&](int op, Labels labels) { out.Add(Load(service.errors[op]), std::move(labels)); });
  out.Histogram("quarry_request_duration_seconds", "From a request's receipt to its last answer, by operation.");
  for_each_op([&](int op, Labels labels) { out.Add(service.latency[op].snapshot(), std::move(labels)); });
}

// Get: to clients, fetches included; put: from clients.
Labels LabelsOf(Via via, Transfer::Kind kind) {
  return {{"op", kind == Transfer::Kind::kWrite ? "get" : "put"}, {"tier", kDramTier}, {"transport", Name(via)}};
}

void AddTransfers(Families& out, const ServiceMetrics& service) {
  const auto for_each_kind = [&](auto&& add) {
    for (const Via via : {Via::kTcp, Via::kGrpc, Via::kShm, Via::kUcx}) {
      for (const auto kind : {Transfer::Kind::kWrite, Transfer::Kind::kRead}) {
        add(service.transfers[static_cast<size_t>(via)][static_cast<size_t>(kind)], LabelsOf(via, kind));
      }
    }
  };
  out.Counter("quarry_transfers_total",
              "Transfers of one item, by operation (get: handed to the transport, fetches included; put: received), "
              "tier, transport and how they ended.");
  for_each_kind([&](const TransferMetrics& transfers, const Labels& labels) {
    for (int i = 0; i < kTransferStatuses; ++i) {
      Labels with_status = labels;
      with_status.push_back({"status", Name(static_cast<TransferStatus>(i))});
      out.Add(Load(transfers.ended[i]), std::move(with_status));
    }
  });
  out.Counter("quarry_transfer_bytes_total", "Payload of the transfers that ended well.");
  for_each_kind([&](const TransferMetrics& transfers, Labels labels) {
    out.Add(static_cast<double>(transfers.bytes.sum()), std::move(labels));
  });
  out.Histogram("quarry_transfer_size_bytes",
                "Payload of each transfer that ended well: of a put one shard of a block, of a get a shard or the part "
                "of it that was asked for.");
  for_each_kind(
      [&](const TransferMetrics& transfers, Labels labels) { out.Add(transfers.bytes.snapshot(), std::move(labels)); });
  out.Histogram("quarry_transfer_duration_seconds",
                "Of each transfer that ended well, from its start, after its turn in the queue, to its end.");
  for_each_kind([&](const TransferMetrics& transfers, Labels labels) {
    out.Add(transfers.latency.snapshot(), std::move(labels));
  });
  out.Gauge("quarry_transfers_queued", "Transfers waiting in the scheduler.");
  out.Add(Load(service.transfers_queued));
  out.Gauge("quarry_transfer_in_flight_bytes", "Payload of transfers that are started and not finished.");
  out.Add(Load(service.bytes_in_flight));
}

void AddDelivered(Families& out, const ServiceMetrics& service) {
  out.Counter("quarry_delivered_items_total", "Items that clients confirmed as arrived and intact.");
  out.Add(Load(service.delivered_items));
  out.Counter("quarry_delivered_bytes_total", "Payload that clients confirmed as arrived and intact.");
  out.Add(Load(service.delivered_bytes));
  out.Counter("quarry_corrupt_items_total", "Items that clients reported as failing their checksum.");
  out.Add(Load(service.corrupt_items));
}

void AddSessions(Families& out, const ServiceMetrics& service) {
  out.Gauge("quarry_sessions", "Sessions that are open.");
  out.Add(Load(service.sessions));
  out.Counter("quarry_sessions_opened_total", "Sessions opened since the start.");
  out.Add(Load(service.sessions_total));
  out.Counter("quarry_sessions_refused_total", "Connections, sessions and data streams turned away, by reason.");
  for (int i = 0; i < kSessionRefusals; ++i) {
    out.Add(Load(service.sessions_refused[i]), {{"reason", Name(static_cast<SessionRefusal>(i))}});
  }
}

}  // namespace

void AddService(Families& out, const ServiceMetrics& service) {
  AddRequests(out, service);
  AddTransfers(out, service);
  AddDelivered(out, service);
  AddSessions(out, service);
}

}  // namespace quarry::server
