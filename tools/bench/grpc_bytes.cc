#include <algorithm>
#include <cstring>
#include <optional>
#include <protozero/pbf_writer.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checksum.h"
#include "common/clock.h"
#include "quarry/v1/cache.pb.h"
#include "tools/bench/block_content.h"
#include "tools/bench/buffer_pool.h"
#include "tools/bench/grpc_call.h"
#include "tools/bench/grpc_workload.h"

namespace quarry::bench {
namespace {

constexpr char kGet[] = "/quarry.v1.Cache/Get";
constexpr char kPut[] = "/quarry.v1.Cache/Put";
constexpr uint64_t kPieceBytes = 1 << 20;  // of a put
constexpr uint32_t kDataField = 15;        // of GetResponse and of PutRequest
constexpr uint64_t kGrpcPutIds = uint64_t{1} << 52;

grpc::ByteBuffer BufferOf(const google::protobuf::MessageLite& message) {
  const std::string bytes = message.SerializeAsString();
  const grpc::Slice slice(bytes.data(), bytes.size());
  return grpc::ByteBuffer(&slice, 1);
}

// PutRequest.data without a copy of it; `data` outlives the call.
grpc::ByteBuffer DataMessage(const std::byte* data, size_t bytes) {
  constexpr uint32_t kLengthDelimited = 2;
  std::string head;
  protozero::add_varint_to_buffer(&head, kDataField << 3 | kLengthDelimited);
  protozero::add_varint_to_buffer(&head, bytes);
  const grpc::Slice slices[] = {grpc::Slice(head.data(), head.size()),
                                grpc::Slice(data, bytes, grpc::Slice::STATIC_SLICE)};
  return grpc::ByteBuffer(slices, 2);
}

class BytesClient {
 public:
  static absl::StatusOr<std::unique_ptr<BytesClient>> Create(const GrpcOptions& options, const std::string& server,
                                                             bool put, const std::string& ns, uint64_t blocks,
                                                             uint32_t number) {
    const uint64_t places = options.arena_bytes / options.clients / options.block_bytes;
    if (places < options.batch) return absl::InvalidArgumentError("--arena must hold --clients x --batch blocks");
    auto pool = BufferPool::Create(places * options.block_bytes, options.block_bytes, number);
    if (!pool.ok()) return pool.status();
    std::unique_ptr<BytesClient> client(new BytesClient(options, put, ns, blocks, number));
    client->pool_ = *std::move(pool);
    client->places_ = places;
    client->channel_ = OpenChannel(server);
    if (put) FillBlock(number, SegmentList{{.base = client->pool_->base(), .length = places * options.block_bytes}});
    return client;
  }

  Slice Run(int64_t start_ns, int64_t end_ns) {
    Slice slice;
    int64_t last_ns = start_ns;
    while (last_ns < end_ns && slice.errors == 0) {
      ids_.clear();
      while (ids_.size() < options_.batch) {
        random_ = Mix(random_);
        ids_.push_back(put_ ? kGrpcPutIds + random_ % kGrpcPutIds : random_ % blocks_);
      }
      const absl::Status status = put_ ? Put(&slice) : Get(ids_, &slice);
      if (!status.ok()) slice.AddError(status.ToString());
      const int64_t now_ns = Clock::Real()->NowNs();
      slice.latencies.Add(now_ns - last_ns);
      ++slice.ops;
      last_ns = now_ns;
    }
    slice.elapsed_ns = last_ns - start_ns;
    return slice;
  }

  // Reads the last block of a put back.
  void Check(Slice* slice) {
    if (!put_ || slice->errors != 0) return;
    const std::byte* source = Place(next_place_ + places_ - 1);
    put_ = false;
    Slice read;
    const absl::Status status = Get({ids_.back()}, &read);
    put_ = true;
    if (!status.ok()) return slice->AddError(status.ToString());
    const std::byte* back = Place(next_place_ + places_ - 1);
    if (read.bytes != 0) slice->wrong_bytes += std::memcmp(source, back, options_.block_bytes) == 0 ? 0 : 1;
    // Its place among the sources has the next one's bytes now; they are as good as any.
  }

 private:
  BytesClient(const GrpcOptions& options, bool put, std::string ns, uint64_t blocks, uint32_t number)
      : options_(options), put_(put), ns_(std::move(ns)), blocks_(blocks) {
    random_ = Mix(static_cast<uint64_t>(Clock::Real()->NowNs()) ^ number);
  }

  std::byte* Place(uint64_t number) const { return pool_->base() + number % places_ * options_.block_bytes; }

  absl::Status Get(const std::vector<uint64_t>& ids, Slice* slice) {
    v1::GetRequest request;
    request.set_namespace_(ns_);
    for (const uint64_t id : ids) request.add_hashes(HashOf(id));
    GrpcCall call(channel_, kGet);
    if (!call.Write(BufferOf(request)) || !call.WritesDone()) return call.Finish();
    grpc::ByteBuffer message;
    std::byte* place = nullptr;
    std::vector<uint64_t> sums;
    while (call.Read(&message)) {
      auto piece = TakePiece(&message, &place, &sums);
      if (!piece.ok()) return piece.status();
      slice->bytes += piece->bytes;
      if (piece->end != options_.block_bytes || ids[piece->item] >= kGrpcPutIds) continue;
      const SegmentList block = {{.base = place, .length = options_.block_bytes}};
      slice->wrong_bytes += WrongBytesSampled(ids[piece->item], block, slice->bytes, kSampledWords);
    }
    return call.Finish();
  }

  struct Piece {
    uint32_t item = 0;
    uint64_t bytes = 0;
    uint64_t end = 0;  // in its block
  };

  // Copies the payload of a message to its place and compares its sums.
  absl::StatusOr<Piece> TakePiece(grpc::ByteBuffer* message, std::byte** place, std::vector<uint64_t>* sums) {
    std::vector<grpc::Slice> slices;
    if (!message->Dump(&slices).ok()) return absl::InternalError("a message cannot be read");
    // All but the data, which comes last, is short.
    constexpr size_t kMostHead = 16 << 10;
    const size_t total = message->Length();
    std::string head;
    for (const grpc::Slice& slice : slices) {
      const size_t take = std::min(slice.size(), kMostHead - head.size());
      head.append(reinterpret_cast<const char*>(slice.begin()), take);
    }
    Piece piece;
    uint64_t offset = 0;
    const char* at = head.data();
    const char* const end = head.data() + head.size();
    while (at != end) {
      const uint64_t tag = protozero::decode_varint(&at, end);
      const uint32_t field = static_cast<uint32_t>(tag >> 3);
      const uint64_t value = protozero::decode_varint(&at, end);  // or the length of bytes
      if (field == 1) piece.item = static_cast<uint32_t>(value);
      if (field == 2) return absl::NotFoundError(absl::StrCat("a block is missing, cause ", value));
      if (field == 3) offset = value;
      if (field == 5) {
        sums->resize(value / sizeof(uint64_t));
        std::memcpy(sums->data(), at, value);
        at += value;
      }
      if (field != kDataField) continue;
      piece.bytes = value;
      break;
    }
    if (offset == 0) *place = Place(next_place_++);
    piece.end = offset + piece.bytes;
    if (piece.end > options_.block_bytes) return absl::InternalError("a block is longer than it was put");
    std::byte* const to = *place + offset;
    size_t skip = total - piece.bytes;
    size_t copied = 0;
    for (const grpc::Slice& slice : slices) {
      const size_t skipped = std::min(skip, slice.size());
      skip -= skipped;
      std::memcpy(to + copied, slice.begin() + skipped, slice.size() - skipped);
      copied += slice.size() - skipped;
    }
    for (size_t done = 0; done < piece.bytes; done += kChunkBytes) {
      const uint64_t sum = ChunkSum(to + done, std::min<size_t>(kChunkBytes, piece.bytes - done));
      if (sum != (*sums)[(offset + done) / kChunkBytes]) return absl::DataLossError("a checksum does not fit");
    }
    return piece;
  }

  absl::Status Put(Slice* slice) {
    GrpcCall call(channel_, kPut);
    v1::PutRequest header;
    header.mutable_header()->set_namespace_(ns_);
    bool sent = call.Write(BufferOf(header));
    for (size_t i = 0; i < ids_.size() && sent; ++i) {
      const std::byte* const source = Place(next_place_++);
      v1::PutRequest begin;
      v1::PutShard* shard = begin.mutable_shard();
      shard->set_hash(HashOf(ids_[i]));
      shard->set_bytes(options_.block_bytes);
      for (uint64_t at = 0; at < options_.block_bytes; at += kChunkBytes) {
        shard->add_chunk_sums(ChunkSum(source + at, std::min<uint64_t>(kChunkBytes, options_.block_bytes - at)));
      }
      sent = call.Write(BufferOf(begin));
      for (uint64_t at = 0; at < options_.block_bytes && sent; at += kPieceBytes) {
        sent = call.Write(DataMessage(source + at, std::min(kPieceBytes, options_.block_bytes - at)));
      }
    }
    grpc::ByteBuffer answer;
    if (!sent || !call.WritesDone() || !call.Read(&answer)) return call.Finish();
    if (absl::Status status = call.Finish(); !status.ok()) return status;
    std::vector<grpc::Slice> slices;
    v1::PutResponse response;
    std::string bytes;
    if (!answer.Dump(&slices).ok()) return absl::InternalError("the answer cannot be read");
    for (const grpc::Slice& part : slices) bytes.append(reinterpret_cast<const char*>(part.begin()), part.size());
    if (!response.ParseFromString(bytes) || response.outcomes_size() != static_cast<int>(ids_.size())) {
      return absl::InternalError("the answer is no PutResponse");
    }
    for (const auto& outcome : response.outcomes()) {
      if (outcome.kind() != v1::PutResponse::Outcome::KIND_STORED) {
        return absl::ResourceExhaustedError(absl::StrCat("a block was not stored, reason ", outcome.reason()));
      }
      slice->bytes += options_.block_bytes;
    }
    return absl::OkStatus();
  }

  const GrpcOptions& options_;
  bool put_;
  const std::string ns_;
  const uint64_t blocks_;
  uint64_t random_ = 0;
  std::unique_ptr<BufferPool> pool_;
  uint64_t places_ = 0;
  uint64_t next_place_ = 0;
  std::shared_ptr<grpc::Channel> channel_;
  std::vector<uint64_t> ids_;  // of the call under way
};

class GrpcBytes : public Workload {
 public:
  explicit GrpcBytes(std::vector<std::unique_ptr<BytesClient>> clients) : clients_(std::move(clients)) {}

  Slice Run(int64_t duration_ns) override {
    std::vector<Slice> slices(clients_.size());
    const int64_t start = Clock::Real()->NowNs();
    InParallel(clients_.size(), [&](size_t i) { slices[i] = clients_[i]->Run(start, start + duration_ns); });
    Slice all;
    for (size_t i = 0; i < clients_.size(); ++i) {
      clients_[i]->Check(&slices[i]);
      all.Merge(slices[i]);
    }
    return all;
  }

 private:
  std::vector<std::unique_ptr<BytesClient>> clients_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Workload>> MakeGrpcBytes(const GrpcOptions& options, const std::string& server, bool put,
                                                        const std::string& ns, uint64_t blocks) {
  std::vector<std::unique_ptr<BytesClient>> clients;
  for (uint32_t i = 0; i < options.clients; ++i) {
    auto client = BytesClient::Create(options, server, put, ns, blocks, i);
    if (!client.ok()) return client.status();
    clients.push_back(*std::move(client));
  }
  return std::unique_ptr<Workload>(new GrpcBytes(std::move(clients)));
}

}  // namespace quarry::bench
