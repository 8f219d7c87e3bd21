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
    case Op::kLookup:
      return "lookup";
    case Op::kRemove:
      return "remove";
    case Op::kList:
      return "list";
    case Op::kStats:
      return "stats";
    case Op::kWatch:
      return "watch";
    case Op::kGetConfig:
      return "get_config";
    case Op::kListNamespaces:
      return "list_namespaces";
    case Op::kSetNamespaceTtl:
      return "set_namespace_ttl";
    case Op::kFlushNamespace:
      return "flush_namespace";
    case Op::kRetireNamespace:
      return "retire_namespace";
    case Op::kPin:
      return "pin";
    case Op::kUnpin:
      return "unpin";
    case Op::kWarm:
      return "warm";
    case Op::kDrain:
      return "drain";
    case Op::kSetLogLevel:
      return "set_log_level";
    case Op::kGetHealth:
      return "get_health";
    case Op::kGetSsd:
      return "get_ssd";
  }
  return "unknown";
}

const char* Name(Via via) {
  switch (via) {
    case Via::kTcp:
      return "tcp";
    case Via::kGrpc:
      return "grpc";
    case Via::kShm:
      return "shm";
    case Via::kUcx:
      return "ucx";
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
