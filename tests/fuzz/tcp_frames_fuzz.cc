// Frames of a data stream from arbitrary bytes. The input is a list of parts: raw bytes, or
// frames that are well formed but for what the input says, because no fuzzer guesses a
// whole item. It is read twice, at once and in the cuts that the input asks for: both must
// tell the same and receive the same bytes.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/transport/tcp/frame_reader.h"
#include "tests/fuzz/input.h"

namespace quarry::transport::tcp {
namespace {

using fuzz::Input;
using fuzz::Require;

constexpr size_t kItemBytes[] = {1, 100, 4096, 65'537};
constexpr uint32_t kItems = std::size(kItemBytes);

std::string HeaderOf(const FrameHeader& header) {
  std::byte bytes[kHeaderBytes];
  EncodeHeader(header, bytes);
  return std::string(reinterpret_cast<const char*>(bytes), kHeaderBytes);
}

// An item of one of the sizes that are expected, or nearly, in frames of any length, which
// may end early, and whose fields may be off by what the input says.
void AppendItem(Input* input, std::string* stream) {
  const ItemId id{input->Take<uint8_t>() % 4u, input->Take<uint8_t>() % (kItems + 1)};
  const auto flaws = input->Take<uint8_t>();
  size_t bytes = kItemBytes[id.item % kItems];
  if (flaws & 1) bytes += input->Take<uint8_t>();
  const std::string payload(bytes, static_cast<char>(input->Take<uint8_t>()));
  std::vector<uint64_t> sums;
  for (size_t at = 0; at < bytes; at += kChunkBytes) {
    sums.push_back(ChunkSum(payload.data() + at, std::min(kChunkBytes, bytes - at)));
  }
  ItemMeta meta{input->Take<uint16_t>(), {0, bytes, bytes}, {0, 0}, sums};
  if (flaws & 2) meta.range.offset = input->Take<uint32_t>();
  if (flaws & 4) meta.range.payload_bytes += input->Take<uint32_t>();
  if (flaws & 8) sums[input->Take<uint8_t>() % sums.size()] ^= 1;
  if (flaws & 16) meta.sums = {};
  std::string encoded;
  EncodeMeta(meta, &encoded);
  // Not so many that all the time goes to headers.
  const size_t frame_bytes = std::min<size_t>(1 + bytes / 16 + input->Take<uint16_t>(), kMaxFramePayload);
  size_t frames = flaws & 32 ? input->Take<uint8_t>() : ~size_t{0};
  for (size_t at = 0; at < bytes && frames > 0; at += frame_bytes, --frames) {
    const size_t part = std::min(frame_bytes, bytes - at);
    FrameHeader header{FrameType::kData, id, at, static_cast<uint32_t>(part),
                       static_cast<uint32_t>(at == 0 ? encoded.size() : 0)};
    if (flaws & 64 && at > 0) header.offset += input->Take<uint8_t>();
    *stream += HeaderOf(header);
    if (at == 0) *stream += encoded;
    stream->append(payload, at, part);
  }
}

std::string StreamOf(Input* input) {
  constexpr size_t kMostBytes = 150'000;
  std::string stream;
  while (!input->empty() && stream.size() < kMostBytes) {
    switch (input->Take<uint8_t>() % 4) {
      case 0:
        stream += input->TakeBytes(input->Take<uint8_t>());
        break;
      case 1:
        stream += HeaderOf({input->Take<uint8_t>() % 2 != 0 ? FrameType::kPull : FrameType::kAbort,
                            {input->Take<uint8_t>() % 4u, input->Take<uint8_t>() % (kItems + 1)}});
        break;
      default:
        AppendItem(input, &stream);
    }
  }
  return stream;
}

// Each item lands in two pieces, each exactly as long as the heap lets it be. Request 1 is
// the client's side (any range), request 2 the server's (whole payloads, sums computed).
class Sink : public FrameSink {
 public:
  Sink() {
    for (uint32_t i = 0; i < 2 * kItems; ++i) items_[i].Create(kItemBytes[i % kItems]);
  }
  Find FindLanding(ItemId id, Landing* landing) override {
    Note("find", id);
    Require(!landing_.has_value());
    if (id.request == 0) return Find::kDiscard;
    if (id.request > 2 || id.item >= kItems) return Find::kRefuse;
    Item& item = At(id);
    landing->segments = absl::MakeConstSpan(item.segments, item.segment_count);
    landing->bytes = kItemBytes[id.item];
    landing->sums = id.request == 2 ? item.sums.get() : nullptr;
    landing_ = id;
    return Find::kLand;
  }
  void OnReceived(ItemId id, const ItemMeta& meta, bool intact) override {
    Note(intact ? "intact" : "damaged", id);
    Require(std::exchange(landing_, std::nullopt) == id);
    received_bytes_ += kItemBytes[id.item];
    Require(meta.range.bytes == kItemBytes[id.item]);
    const std::string payload = At(id).Payload();
    told_ += payload;
    if (id.request == 2) Require(meta.range.payload_bytes == payload.size());
    const bool whole = meta.range.bytes == meta.range.payload_bytes;
    if (!whole || (meta.sums.empty() && id.request != 2)) return;
    bool same = true;
    for (size_t chunk = 0; chunk < ChunkCount(payload.size()); ++chunk) {
      const size_t at = chunk * kChunkBytes;
      const uint64_t sum = ChunkSum(payload.data() + at, std::min(kChunkBytes, payload.size() - at));
      if (!meta.sums.empty()) same = same && sum == meta.sums[chunk];
      if (id.request == 2) Require(At(id).sums[chunk] == sum);
    }
    Require(same == intact);
  }
  void OnBroken(ItemId id, bool wrong_size) override {
    Note(wrong_size ? "wrong size" : "broken", id);
    Require(std::exchange(landing_, std::nullopt) == id);
  }
  absl::Status OnPull(ItemId id) override {
    Note("pull", id);
    return absl::OkStatus();
  }
  absl::Status OnAbort(ItemId id) override {
    Note("abort", id);
    if (landing_ == id) landing_.reset();
    return absl::OkStatus();
  }

  size_t received_bytes() const { return received_bytes_; }
  const std::string& told() const { return told_; }

 private:
  struct Item {
    void Create(size_t bytes) {
      const size_t parts[] = {bytes / 2, bytes - bytes / 2};
      for (size_t i = 0; i < 2; ++i) {
        if (parts[i] == 0) continue;
        memory[i] = std::make_unique<std::byte[]>(parts[i]);
        segments[segment_count++] = {memory[i].get(), parts[i], 0, 1};
      }
      sums = std::make_unique<uint64_t[]>(ChunkCount(bytes));
    }
    std::string Payload() const {
      std::string payload;
      for (size_t i = 0; i < segment_count; ++i) {
        payload.append(reinterpret_cast<const char*>(segments[i].base), segments[i].length);
      }
      return payload;
    }
    std::unique_ptr<std::byte[]> memory[2];
    Segment segments[2];
    size_t segment_count = 0;
    std::unique_ptr<uint64_t[]> sums;
  };
  Item& At(ItemId id) { return items_[(id.request - 1) * kItems + id.item]; }
  void Note(const char* what, ItemId id) {
    told_ += std::string(what) + " " + std::to_string(id.request) + "/" + std::to_string(id.item) + "\n";
  }

  Item items_[2 * kItems];
  std::optional<ItemId> landing_;
  size_t received_bytes_ = 0;
  std::string told_;  // what happened, with the bytes of what was received
};

// Sends the stream in pieces of `cut` bytes and reads after each; stops at the first error.
std::string Read(const std::string& stream, size_t cut) {
  int fds[2];
  Require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
  Sink sink;
  FrameReader reader(&sink);
  bool ended = false;
  for (size_t sent = 0; sent < stream.size() && !ended;) {
    const ssize_t taken = send(fds[0], stream.data() + sent, std::min(cut, stream.size() - sent), MSG_NOSIGNAL);
    if (taken > 0) sent += static_cast<size_t>(taken);
    ended = !reader.Read(fds[1], 1 << 20).ok();
    Require(sink.received_bytes() <= sent);
  }
  close(fds[0]);
  if (!ended) Require(!reader.Read(fds[1], 1 << 20).ok());
  close(fds[1]);
  return sink.told();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const size_t cut = 1u + input.Take<uint16_t>() % 5000;
  const std::string stream = StreamOf(&input);
  const std::string at_once = Read(stream, stream.size() + 1);
  const std::string in_cuts = Read(stream, std::max(cut, stream.size() / 200));
  Require(at_once == in_cuts);
  return 0;
}

}  // namespace quarry::transport::tcp
