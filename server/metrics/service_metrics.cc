#include "server/metrics/service_metrics.h"

namespace quarry::server {

const char* Name(Op op) {
  switch (op) {
    case Op::kMatch:
      return "match";
    case Op::kGet:
      return "get";
    case Op::kPut:
      return "put";
    case Op::kFetch:
      return "fetch";
    case Op::kOpenNamespace:
      return "open_namespace";
    case Op::kTouch:
      return "touch";
    case Op::kRenewLease:
      return "renew_lease";
    case Op::kReleaseLease:
      return "release_lease";
  }
  return "unknown";
}

const char* Name(Via via) {
  switch (via) {
    case Via::kTcp:
      return "tcp";
    case Via::kGrpc:
      return "grpc";
  }
  return "";
}

const char* Name(SessionRefusal refusal) {
  switch (refusal) {
    case SessionRefusal::kHandshake:
      return "handshake";
    case SessionRefusal::kTooMany:
      return "too_many";
    case SessionRefusal::kDraining:
      return "draining";
    case SessionRefusal::kCredential:
      return "credential";
    case SessionRefusal::kUnknownSession:
      return "unknown_session";
  }
  return "unknown";
}

const char* Name(transport::TransferStatus status) {
  switch (status) {
    case transport::TransferStatus::kOk:
      return "ok";
    case transport::TransferStatus::kCancelled:
      return "cancelled";
    case transport::TransferStatus::kClosed:
      return "closed";
    case transport::TransferStatus::kChecksum:
      return "checksum";
    case transport::TransferStatus::kWrongSize:
      return "wrong_size";
  }
  return "unknown";
}

}  // namespace quarry::server
