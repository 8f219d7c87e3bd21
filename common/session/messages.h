// The messages of transfer.proto as plain structs, with their encoding and decoding.
//
// The wire format is Protocol Buffers, as proto/quarry/v1/transfer.proto says; it is read
// and written with protozero, not with generated code, because the client library must
// link no protobuf runtime (it lives in processes that bring their own) and because hashes
// and states can then be read in place. tests/unit/common/messages_proto_test.cc holds it against the
// generated code.
//
// string_view members of decoded messages point into the decoded bytes.
#ifndef QUARRY_COMMON_SESSION_MESSAGES_H_
#define QUARRY_COMMON_SESSION_MESSAGES_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "quarry/block.h"
#include "quarry/model_spec.h"

namespace quarry::wire {

inline constexpr uint32_t kMajorVersion = 1;
inline constexpr uint32_t kMinorVersion = 0;
inline constexpr absl::string_view kPreface = "QUARRY1\n";
inline constexpr size_t kMaxMessageBytes = 4 << 20;
inline constexpr size_t kSessionIdBytes = 16;
inline constexpr size_t kLeaseTokenBytes = 16;

// ------------------------------------------------------------ client to server

struct Hello {
  uint32_t major = kMajorVersion;
  uint32_t minor = kMinorVersion;
  absl::string_view client;
  absl::string_view credential;
};

struct DataHello {
  uint32_t major = kMajorVersion;
  uint32_t minor = kMinorVersion;
  absl::string_view session;
  uint32_t shared_memory = 0;
  bool ucx = false;
};

struct OpenNamespace {
  absl::string_view name;
  ModelSpec spec;
  bool sibling_on_mismatch = false;
  uint64_t ttl_ms = 0;
};

struct ChainPart {
  uint32_t group = 0;
  uint64_t first_block = 0;
  absl::string_view hashes;
};

struct Match {
  uint32_t handle = 0;
  uint64_t local_tokens = 0;
  std::vector<ChainPart> chains;
  uint32_t lease_ms = 0;
  bool no_touch = false;
  std::vector<uint32_t> prefetch_shards;
};

struct GetRun {
  uint32_t group = 0;
  uint32_t shard = 0;
  absl::string_view hashes;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

struct Get {
  uint32_t handle = 0;
  std::vector<GetRun> runs;
  absl::string_view lease;
  uint32_t deadline_ms = 0;
  uint32_t priority = 0;
  bool wait_in_flight = false;
  uint64_t credit_bytes = 0;
};

struct Credit {
  uint64_t bytes = 0;
};

struct FetchPrefix {
  Match match;
  std::vector<uint32_t> shards;
  uint64_t max_blocks = 0;
  uint64_t min_blocks = 0;
  uint32_t deadline_ms = 0;
  uint32_t priority = 0;
};

struct PutRun {
  uint32_t group = 0;
  uint32_t shard = 0;
  uint64_t first_block = 0;
  absl::string_view hashes;
  absl::string_view parent;
  std::vector<uint64_t> bytes;
};

struct Put {
  uint32_t handle = 0;
  std::vector<PutRun> runs;
  uint32_t deadline_ms = 0;
  uint32_t priority = 0;
  uint32_t retain_ms = 0;
  bool no_ssd = false;
  bool wait_in_flight = false;
};

struct RenewLease {
  absl::string_view lease;
  uint32_t lease_ms = 0;
};

struct ReleaseLease {
  absl::string_view lease;
};

struct Touch {
  uint32_t handle = 0;
  std::vector<ChainPart> chains;
};

struct Cancel {};

struct Delivered {
  uint32_t items = 0;
  uint64_t bytes = 0;
  std::vector<uint32_t> corrupt_items;
};

struct GetView {};

struct ClientMessage {
  uint64_t request = 0;
  std::variant<std::monostate, Hello, OpenNamespace, Match, Get, FetchPrefix, Put, RenewLease, ReleaseLease, Touch,
               Cancel, Delivered, DataHello, GetView, Credit>
      body;
};

// ------------------------------------------------------------ server to client

struct Error {
  uint32_t code = 0;  // absl::StatusCode
  absl::string_view message;
  std::vector<std::string> differing_fields;
};

struct Limits {
  uint32_t max_items = 65536;
  uint32_t max_lease_ms = 60'000;
  uint32_t max_message_bytes = kMaxMessageBytes;
  uint32_t max_data_streams = 16;
  uint32_t max_namespaces = 1024;
  uint32_t max_requests = 1024;
};

// To whom a node moves payload by UCX.
enum class UcxOffer : uint32_t { kNone, kWithinHost, kFabric };

struct HelloReply {
  uint32_t major = kMajorVersion;
  uint32_t minor = kMinorVersion;
  absl::string_view session;
  Limits limits;
  absl::string_view node;
  absl::string_view socket;
  UcxOffer ucx = UcxOffer::kNone;
};

struct NamespaceReply {
  uint32_t handle = 0;
  absl::string_view id;
  absl::string_view name;
  std::vector<std::string> differing_fields;
  uint64_t ttl_ms = 0;
};

struct ChainState {
  absl::string_view states;  // one BlockState a byte
  uint64_t first_usable = 0;
  uint64_t end_usable = 0;
};

struct MatchReply {
  uint64_t usable_tokens = 0;
  std::vector<ChainState> chains;
  MissCause first_miss = MissCause::kNone;
  uint32_t first_miss_chain = 0;
  uint64_t first_miss_block = 0;
  absl::string_view lease;
  uint32_t lease_ms = 0;
  uint64_t fetched_blocks = 0;
  LeaseLimit lease_limit = LeaseLimit::kNone;
};

struct GetProgress {
  std::vector<uint32_t> missed_items;
  std::vector<MissCause> causes;
  bool done = false;
  std::vector<uint32_t> dropped_items;
};

struct PutProgress {
  std::vector<uint32_t> items;
  std::vector<PutOutcome> outcomes;
  std::vector<RefusalReason> reasons;
  bool done = false;
};

struct LeaseReply {
  uint32_t lease_ms = 0;
};

struct Draining {};

struct View {
  absl::string_view digest;
  std::vector<std::string> nodes;
};

struct Ack {};

struct ServerMessage {
  uint64_t request = 0;
  std::variant<std::monostate, Error, HelloReply, NamespaceReply, MatchReply, GetProgress, PutProgress, LeaseReply,
               Draining, View, Ack>
      body;
};

// Appends the length prefix and the encoded message.
void AppendFramed(const ClientMessage& message, std::string* out);
void AppendFramed(const ServerMessage& message, std::string* out);

// Without the length prefix. InvalidArgument for bytes that are not such a message; an
// unknown body (a newer minor version) decodes as std::monostate; unknown fields are
// skipped. Enum values out of range and arrays of unequal length are errors. Never
// throws.
absl::StatusOr<ClientMessage> DecodeClientMessage(absl::string_view bytes);
absl::StatusOr<ServerMessage> DecodeServerMessage(absl::string_view bytes);

// A spec by itself, as types.proto has it: for what keeps it on a disk. Decoded like a message;
// whether it is a valid one is Validate's to say.
void AppendSpec(const ModelSpec& spec, std::string* out);
absl::StatusOr<ModelSpec> DecodeSpec(absl::string_view bytes);

}  // namespace quarry::wire

#endif  // QUARRY_COMMON_SESSION_MESSAGES_H_
