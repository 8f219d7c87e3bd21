// Frames as a peer would send them, well formed or not, and a sink that writes down what a
// FrameReader makes of them.
#ifndef QUARRY_TESTS_UNIT_TRANSPORT_WIRE_H_
#define QUARRY_TESTS_UNIT_TRANSPORT_WIRE_H_

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/transport/tcp/frame_reader.h"
#include "tests/unit/transport/memory.h"

namespace quarry::transport::tcp {

inline std::string HeaderOf(const FrameHeader& header) {
  std::byte bytes[kHeaderBytes];
  EncodeHeader(header, bytes);
  return std::string(reinterpret_cast<const char*>(bytes), kHeaderBytes);
}

inline std::string Text(const Bytes& bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

inline std::vector<uint64_t> SumsOf(const Bytes& payload) {
  std::vector<uint64_t> sums;
  for (size_t at = 0; at < payload.size(); at += kChunkBytes) {
    sums.push_back(ChunkSum(payload.data() + at, std::min(kChunkBytes, payload.size() - at)));
  }
  return sums;
}

// Frame by frame, of `frame_bytes` payload each. `change` may spoil the metadata.
template <typename Change>
std::vector<std::string> FramesOf(ItemId id, const Bytes& payload, size_t frame_bytes, Change change) {
  std::vector<uint64_t> sums = SumsOf(payload);
  ItemMeta meta{RootSum(1, payload.size(), sums), {0, payload.size(), payload.size()}, {0, 0}, sums};
  change(meta);
  std::string encoded;
  EncodeMeta(meta, &encoded);
  std::vector<std::string> frames;
  for (size_t at = 0; at < payload.size(); at += frame_bytes) {
    const size_t bytes = std::min(frame_bytes, payload.size() - at);
    std::string frame = HeaderOf(
        {FrameType::kData, id, at, static_cast<uint32_t>(bytes), static_cast<uint32_t>(at == 0 ? encoded.size() : 0)});
    if (at == 0) frame += encoded;
    frames.push_back(frame + Text(payload).substr(at, bytes));
  }
  return frames;
}
inline std::vector<std::string> FramesOf(ItemId id, const Bytes& payload, size_t frame_bytes = kMaxFramePayload) {
  return FramesOf(id, payload, frame_bytes, [](ItemMeta&) {});
}

inline std::string Joined(const std::vector<std::string>& frames) {
  std::string all;
  for (const std::string& frame : frames) all += frame;
  return all;
}

// Lands items of request 1 in buffers; discards those of request 2; refuses the rest.
class RecordingSink : public FrameSink {
 public:
  struct Place {
    Place(Shape shape, size_t bytes) : buffer(shape, bytes), sums(ChunkCount(bytes)) {}
    ScatteredBuffer buffer;
    std::vector<uint64_t> sums;
    bool checksum = true;
    bool keep_sums = false;
  };
  Place& Add(Shape shape, size_t bytes) {
    places_.push_back(std::make_unique<Place>(shape, bytes));
    return *places_.back();
  }
  Place& place(uint32_t item) { return *places_[item]; }
  const std::vector<std::string>& log() const { return log_; }

  Find FindLanding(ItemId id, Landing* landing) override {
    Log("find", id, "");
    if (id.request == 2) return Find::kDiscard;
    if (id.request != 1 || id.item >= places_.size()) return Find::kRefuse;
    Place& place = *places_[id.item];
    landing->segments = place.buffer.segments();
    landing->bytes = place.buffer.size();
    landing->checksum = place.checksum;
    landing->sums = place.keep_sums ? place.sums.data() : nullptr;
    return Find::kLand;
  }
  void OnReceived(ItemId id, const ItemMeta& meta, bool intact) override {
    Log("received", id, absl::StrCat(meta.range.bytes, intact ? " intact" : " damaged"));
  }
  void OnBroken(ItemId id, bool wrong_size) override { Log("broken", id, wrong_size ? "wrong size" : ""); }
  absl::Status OnPull(ItemId id) override {
    Log("pull", id, "");
    return absl::OkStatus();
  }
  absl::Status OnAbort(ItemId id) override {
    Log("abort", id, "");
    return absl::OkStatus();
  }

 private:
  void Log(const char* what, ItemId id, const std::string& more) {
    log_.push_back(absl::StrCat(what, " ", id.request, "/", id.item, more.empty() ? "" : " ", more));
  }
  std::vector<std::unique_ptr<Place>> places_;
  std::vector<std::string> log_;
};

}  // namespace quarry::transport::tcp

#endif  // QUARRY_TESTS_UNIT_TRANSPORT_WIRE_H_
