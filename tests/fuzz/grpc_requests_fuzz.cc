// Calls of quarry.v1.Cache and Admin from arbitrary bytes, to the very code that answers them
// in the server, before a small store. The input is a list of calls: a byte that says which, a
// length, and the request as protobuf. The messages of a put come one by one, with other calls
// between them.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <protozero/pbf_reader.hpp>
#include <string>
#include <vector>

#include "common/checksum.h"
#include "common/clock.h"
#include "quarry/v1/admin.pb.h"
#include "quarry/v1/cache.pb.h"
#include "server/cache_service.h"
#include "server/grpc/admin_calls.h"
#include "server/grpc/cache_calls.h"
#include "server/grpc/convert.h"
#include "server/grpc/get_pieces.h"
#include "server/grpc/put_shards.h"
#include "server/grpc/status.h"
#include "tests/fuzz/input.h"

namespace quarry::server {
namespace {

using fuzz::Require;

constexpr uint32_t kMaxItems = 64;
constexpr uint64_t kShardBytes = 70'000;  // two chunks

// Hashes of two bytes, so that calls meet blocks that others have put.
ModelSpec SmallSpec() {
  ModelSpec spec;
  spec.model = "m";
  spec.kv_dtype = "bfloat16";
  spec.hash_scheme = "numbers";
  spec.hash_bytes = 2;
  spec.allow_short_hashes = true;
  spec.layers = 1;
  spec.groups = {{GroupKind::kFull, 16, 0, 1, kShardBytes, false}, {GroupKind::kWindow, 16, 32, 2, 100, false}};
  return spec;
}

// The field that a BadRequest among the details names; empty: there is none.
std::string FieldOf(const grpc::Status& status) {
  const auto view = [](const protozero::data_view& data) { return std::string(data.data(), data.size()); };
  const std::string details = status.error_details();
  protozero::pbf_reader rpc_status(details);
  while (rpc_status.next(3)) {
    protozero::pbf_reader any = rpc_status.get_message();
    Require(any.next(1));
    const std::string type = view(any.get_view());
    Require(any.next(2));
    const std::string bytes = view(any.get_view());
    if (type != "type.googleapis.com/google.rpc.BadRequest") continue;
    protozero::pbf_reader request(bytes);
    Require(request.next(1));
    protozero::pbf_reader violation = request.get_message();
    Require(violation.next(1));
    return view(violation.get_view());
  }
  return "";
}

void CheckError(const absl::Status& status) {
  const grpc::Status sent = ToGrpc(status);
  Require(!sent.error_message().empty());
  Require(status.code() != absl::StatusCode::kInternal && status.code() != absl::StatusCode::kUnknown);
  if (status.code() == absl::StatusCode::kInvalidArgument || status.code() == absl::StatusCode::kOutOfRange) {
    Require(!FieldOf(sent).empty());
  }
}

grpc::ByteBuffer BufferOf(const std::string& bytes) {
  const grpc::Slice slice(bytes.data(), bytes.size());
  return grpc::ByteBuffer(&slice, 1);
}

std::string BytesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  Require(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes;
}

class Node {
 public:
  Node() {
    BlockStoreOptions options;
    options.arena_bytes = 2 << 20;
    options.slab_bytes = 256 << 10;
    options.prefault = false;
    options.index_shards = 2;
    options.ghost_entries = 1 << 8;
    options.events = 64;
    options.max_leased_blocks = 16;
    store_ = *BlockStore::Create(options, &clock_);
    wire::Limits limits;
    limits.max_items = kMaxItems;
    service_ = std::make_unique<CacheService>(&namespaces_, store_.get(), &metrics_, limits);
    cache_ = std::make_unique<CacheCalls>(service_.get(), "fuzz");
    AdminHooks hooks;
    hooks.config = [] { return std::vector<AdminHooks::ConfigValue>{{"name", "value", true, false, "help"}}; };
    hooks.drain = [this] { service_->Drain(); };
    hooks.set_log_level = [](const std::string& level) -> absl::StatusOr<std::string> {
      if (level == "info") return std::string("info");
      return absl::InvalidArgumentError("level: not one");
    };
    hooks.health = [] { return AdminHooks::Health{}; };
    admin_ = std::make_unique<AdminCalls>(service_.get(), std::move(hooks));
    Require(service_->OpenNamespace(kDefaultTenant, "n", SmallSpec(), false, 0).ok());
  }

  ~Node() {
    EndPut();
    put_.reset();
    Require(put_bytes_.taken() == 0);
    CheckMemoryComesBack();
  }

  // One of kCalls.
  void Call(uint8_t which, const std::string& request) {
    clock_.AdvanceMs(1);
    (this->*kCalls[which % std::size(kCalls)])(request);
    store_->Tick();
  }

 private:
  // A call that is refused changes nothing that the store counts.
  template <typename Request, typename Response, auto kApi>
  void Unary(const std::string& bytes) {
    Request request;
    if (!request.ParseFromString(bytes)) return;  // gRPC itself refuses it
    const std::string before = Counters();
    Response response;
    const absl::Status status = (this->*kApi)->Handle(request, &response);
    if (status.ok()) return;
    CheckError(status);
    Require(Counters() == before);
  }

  void Get(const std::string& bytes) {
    const std::string before = Counters();
    GetPieces pieces(service_.get());
    if (const absl::Status status = pieces.Begin(BufferOf(bytes)); !status.ok()) {
      CheckError(status);
      Require(Counters() == before);
      return;
    }
    v1::GetRequest request;
    Require(request.ParseFromString(bytes));
    grpc::ByteBuffer buffer;
    uint32_t item = 0;
    std::string payload;
    std::vector<uint64_t> sums;
    GetPieces::Step step;
    while ((step = pieces.Next(&buffer)) == GetPieces::Step::kMessage) {
      v1::GetResponse response;
      Require(response.ParseFromString(BytesOf(buffer)));
      Require(response.item() == item);
      if (response.miss() != v1::MISS_CAUSE_UNSPECIFIED) {
        ++item;
        continue;
      }
      if (payload.empty()) sums.assign(response.chunk_sums().begin(), response.chunk_sums().end());
      Require(response.offset() == request.offset() + payload.size());
      payload += response.data();
      // Pieces are larger than the largest shard.
      if (request.bytes() != 0) Require(payload.size() == request.bytes());
      if (request.offset() == 0 && payload.size() == response.payload_bytes()) CheckSums(payload, sums);
      payload.clear();
      ++item;
    }
    Require(step == GetPieces::Step::kEnd);  // no SSD here to load from
    if (!pieces.status().ok()) return CheckError(pieces.status());
    Require(item == static_cast<uint32_t>(request.hashes_size()));
  }

  static void CheckSums(const std::string& payload, const std::vector<uint64_t>& sums) {
    Require(sums.size() == ChunkCount(payload.size()));
    for (size_t chunk = 0; chunk < sums.size(); ++chunk) {
      const size_t at = chunk * kChunkBytes;
      Require(sums[chunk] == ChunkSum(payload.data() + at, std::min(kChunkBytes, payload.size() - at)));
    }
  }

  void Put(const std::string& bytes) {
    if (!put_.has_value()) put_.emplace(service_.get(), &put_bytes_);
    grpc::ByteBuffer message = BufferOf(bytes);
    const uint64_t stored = store_->stats().stored_shards;
    const absl::Status status = put_->Take(&message);
    if (status.ok()) return;
    CheckError(status);
    Require(store_->stats().stored_shards == stored);
    put_->Drop();
    CheckOutcomes();
  }

  // Payload without spending the input on it.
  void PutZeros(const std::string& bytes) {
    uint16_t count = 0;
    std::memcpy(&count, bytes.data(), std::min(bytes.size(), sizeof count));
    v1::PutRequest request;
    request.set_data(std::string(count, '\0'));
    Put(request.SerializeAsString());
  }

  // So that some calls come behind the end of a time to live, or of a lease.
  void Wait(const std::string& /*bytes*/) { clock_.AdvanceMs(400); }

  void EndPut(const std::string& /*bytes*/ = "") {
    if (!put_.has_value()) return;
    if (const absl::Status status = put_->CheckWhole(); !status.ok()) CheckError(status);
    put_->Drop();
    CheckOutcomes();
  }

  // Ends the put: each shard that was begun has an outcome, and no slot is left reserved.
  void CheckOutcomes() {
    for (const auto& outcome : put_->response().outcomes()) {
      Require(outcome.kind() != v1::PutResponse::Outcome::KIND_UNSPECIFIED);
      const bool refused = outcome.kind() == v1::PutResponse::Outcome::KIND_REFUSED;
      Require(refused == (outcome.reason() != v1::REFUSAL_REASON_UNSPECIFIED));
    }
    put_.reset();
    Require(put_bytes_.taken() == 0 && store_->stats().in_flight_puts == 0);
  }

  std::string Counters() const {
    const StoreStats stats = store_->stats();
    v1::StatsResponse all;
    ToProto(stats, &all);
    all.set_uptime_ms(stats.lease_counts.granted + stats.lease_counts.renewed + stats.lease_counts.released);
    for (const Namespace* ns : service_->namespaces().List()) ToProto(*ns, all.add_namespaces());
    return all.SerializeAsString();
  }

  // Whatever was stored, leased and pinned, emptied namespaces hold nothing.
  void CheckMemoryComesBack() {
    for (const Namespace* ns : service_->namespaces().List()) Require(service_->Flush(ns->tenant, ns->name).ok());
    for (int turn = 0; turn < 1000 && store_->stats().used_bytes != 0; ++turn) store_->Tick();
    const StoreStats stats = store_->stats();
    Require(stats.used_bytes == 0 && stats.blocks == 0 && stats.leased_bytes == 0);
  }

  using CallOf = void (Node::*)(const std::string&);
  static const CallOf kCalls[22];

  ManualClock clock_;
  NamespaceRegistry namespaces_;
  ServiceMetrics metrics_;
  std::unique_ptr<BlockStore> store_;
  std::unique_ptr<CacheService> service_;
  std::unique_ptr<CacheCalls> cache_;
  std::unique_ptr<AdminCalls> admin_;
  Quota put_bytes_{200'000};
  std::optional<PutShards> put_;
};

#define QUARRY_CALL(api, name) &Node::Unary<v1::name##Request, v1::name##Response, &Node::api>
// New ones at the end: the seed inputs know these by their place.
const Node::CallOf Node::kCalls[22] = {
    QUARRY_CALL(cache_, OpenNamespace),
    QUARRY_CALL(cache_, Match),
    QUARRY_CALL(cache_, Lookup),
    &Node::Get,
    &Node::Put,
    &Node::PutZeros,
    &Node::EndPut,
    QUARRY_CALL(cache_, Touch),
    QUARRY_CALL(cache_, Remove),
    QUARRY_CALL(cache_, List),
    QUARRY_CALL(cache_, Stats),
    QUARRY_CALL(admin_, GetConfig),
    QUARRY_CALL(admin_, ListNamespaces),
    QUARRY_CALL(admin_, FlushNamespace),
    QUARRY_CALL(admin_, RetireNamespace),
    QUARRY_CALL(admin_, Pin),
    QUARRY_CALL(admin_, Unpin),
    QUARRY_CALL(admin_, Warm),
    QUARRY_CALL(admin_, Drain),
    QUARRY_CALL(admin_, SetLogLevel),
    QUARRY_CALL(admin_, SetNamespaceTtl),
    &Node::Wait,
};
#undef QUARRY_CALL

}  // namespace
}  // namespace quarry::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kHeadBytes = 3;
  constexpr int kMaxCalls = 100;
  quarry::server::Node node;
  for (int call = 0; call < kMaxCalls && size >= kHeadBytes; ++call) {
    const size_t length = std::min<size_t>(data[1] | data[2] << 8, size - kHeadBytes);
    node.Call(data[0], std::string(reinterpret_cast<const char*>(data) + kHeadBytes, length));
    data += kHeadBytes + length;
    size -= kHeadBytes + length;
  }
  return 0;
}
