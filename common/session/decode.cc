// Bytes to structs. Protozero reports malformed bytes by exceptions; they end in this
// file, as do our own.
#include <algorithm>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/session/fields.h"
#include "protozero/exception.hpp"
#include "protozero/pbf_reader.hpp"

namespace quarry::wire {
namespace {

using WireType = protozero::pbf_wire_type;

// Messages and strings in one repeated field: an empty one costs two bytes on the wire
// and much more decoded.
constexpr size_t kMaxRepeated = 128 << 10;

class Malformed : public protozero::exception {
 public:
  explicit Malformed(const char* what) : what_(what) {}
  const char* what() const noexcept override { return what_; }

 private:
  const char* what_;
};

// What a message has when nothing of it is on the wire: zeros, whatever the struct's
// defaults are.
template <typename T>
T Absent() {
  return T{};
}
template <>
GroupSpec Absent() {
  return {.kind = GroupKind{}, .tokens_per_block = 0, .shards = 0, .exact_bytes = false};
}
template <>
ModelSpec Absent() {
  return {.hash_bytes = 0};
}
template <>
Hello Absent() {
  return {.major = 0, .minor = 0};
}
template <>
DataHello Absent() {
  return {.major = 0, .minor = 0};
}
template <>
OpenNamespace Absent() {
  return {.spec = Absent<ModelSpec>()};
}
template <>
Limits Absent() {
  return {0, 0, 0, 0, 0, 0};
}
template <>
HelloReply Absent() {
  return {.major = 0, .minor = 0, .limits = Absent<Limits>()};
}

constexpr GroupKind Last(GroupKind) { return GroupKind::kState; }
constexpr MissCause Last(MissCause) { return static_cast<MissCause>(kMissCauses - 1); }
constexpr UcxOffer Last(UcxOffer) { return UcxOffer::kFabric; }
constexpr PutOutcome Last(PutOutcome) { return PutOutcome::kRefused; }
constexpr LeaseLimit Last(LeaseLimit) { return static_cast<LeaseLimit>(kLeaseLimits - 1); }
constexpr RefusalReason Last(RefusalReason) { return static_cast<RefusalReason>(kRefusalReasons - 1); }

// What must hold of a message as a whole.
template <typename T>
void Check(const T&) {}

void Check(const ChainState& m) {
  const auto is_known = [](char state) { return static_cast<uint8_t>(state) <= uint8_t(BlockState::kInFlight); };
  if (!std::all_of(m.states.begin(), m.states.end(), is_known)) throw Malformed("block state out of range");
}
void Check(const GetProgress& m) {
  if (m.causes.size() != m.missed_items.size()) throw Malformed("causes and missed_items differ in number");
}
void Check(const PutProgress& m) {
  if (m.outcomes.size() != m.items.size() || m.reasons.size() != m.items.size()) {
    throw Malformed("items, outcomes and reasons differ in number");
  }
}

// Reads the fields of one message. A field of another wire type than expected is skipped
// like an unknown one, as generated code does.
class Decoder {
 public:
  explicit Decoder(protozero::data_view bytes) : reader_(bytes) {}

  // Finds the next field; then Field reads it if the number is its own.
  bool Next() {
    if (pending_ != 0) reader_.skip();
    pending_ = 0;
    if (!reader_.next()) return false;
    pending_ = reader_.tag();
    return true;
  }
  uint32_t tag() const { return pending_; }

  template <Number T>
  void Field(uint32_t tag, T& value) {
    if (Take(tag, WireType::varint)) value = Convert<T>(reader_.get_uint64());
  }
  // Packed or one by one: parsers take both.
  template <Number T>
  void Field(uint32_t tag, std::vector<T>& values) {
    if (Take(tag, WireType::length_delimited)) {
      for (const uint64_t value : reader_.get_packed_uint64()) values.push_back(Convert<T>(value));
    } else if (Take(tag, WireType::varint)) {
      values.push_back(Convert<T>(reader_.get_uint64()));
    }
  }
  void Field(uint32_t tag, absl::string_view& value) {
    if (Take(tag, WireType::length_delimited)) value = View();
  }
  void Field(uint32_t tag, std::string& value) {
    if (Take(tag, WireType::length_delimited)) value = std::string(View());
  }
  void Field(uint32_t tag, std::vector<std::string>& values) {
    if (Take(tag, WireType::length_delimited)) Grow(values) = std::string(View());
  }
  template <Message T>
  void Field(uint32_t tag, T& message) {
    if (Take(tag, WireType::length_delimited)) Decode(reader_.get_view(), message);
  }
  template <Message T>
  void Field(uint32_t tag, std::vector<T>& messages) {
    if (Take(tag, WireType::length_delimited)) Decode(reader_.get_view(), Grow(messages));
  }
  template <typename T, typename Variant>
  void Body(uint32_t tag, Variant& body) {
    if (!Take(tag, WireType::length_delimited)) return;
    if (!std::holds_alternative<T>(body)) body = Absent<T>();
    Decode(reader_.get_view(), std::get<T>(body));
  }

 private:
  template <typename T>
  static void Decode(protozero::data_view bytes, T& message) {
    Decoder decoder(bytes);
    while (decoder.Next()) Fields(decoder, message);
    Check(message);
  }

  bool Take(uint32_t tag, WireType type) {
    if (tag != pending_ || !reader_.has_wire_type(type)) return false;
    pending_ = 0;
    return true;
  }

  absl::string_view View() {
    const protozero::data_view view = reader_.get_view();
    return {view.data(), view.size()};
  }

  template <typename T>
  static T Convert(uint64_t value) {
    if constexpr (std::is_enum_v<T>) {
      if (value > static_cast<uint64_t>(Last(T{}))) throw Malformed("enum value out of range");
    }
    return static_cast<T>(value);
  }

  template <typename T>
  static T& Grow(std::vector<T>& list) {
    if (list.size() == kMaxRepeated) throw Malformed("too many elements in a repeated field");
    return list.emplace_back(Absent<T>());
  }

  protozero::pbf_reader reader_;
  uint32_t pending_ = 0;  // number of the field that is next in reader_, 0 when it is read
};

template <size_t kIndex, typename Variant>
void DecodeBody(Decoder& decoder, Variant& body) {
  if constexpr (kIndex < std::variant_size_v<Variant>) {
    decoder.Body<std::variant_alternative_t<kIndex, Variant>>(BodyTag(kIndex), body);
    DecodeBody<kIndex + 1>(decoder, body);
  }
}

template <typename Envelope>
absl::StatusOr<Envelope> DecodeEnvelope(absl::string_view bytes, absl::string_view name) {
  if (bytes.size() > kMaxMessageBytes) {
    return absl::InvalidArgumentError(absl::StrCat(name, " of ", bytes.size(), " bytes; at most ", kMaxMessageBytes));
  }
  try {
    Envelope message;
    Decoder decoder({bytes.data(), bytes.size()});
    while (decoder.Next()) {
      decoder.Field(1, message.request);
      DecodeBody<1>(decoder, message.body);
    }
    return message;
  } catch (const protozero::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("malformed ", name, ": ", error.what()));
  }
}

}  // namespace

absl::StatusOr<ClientMessage> DecodeClientMessage(absl::string_view bytes) {
  return DecodeEnvelope<ClientMessage>(bytes, "ClientMessage");
}

absl::StatusOr<ServerMessage> DecodeServerMessage(absl::string_view bytes) {
  return DecodeEnvelope<ServerMessage>(bytes, "ServerMessage");
}

absl::StatusOr<ModelSpec> DecodeSpec(absl::string_view bytes) {
  try {
    ModelSpec spec = Absent<ModelSpec>();
    Decoder decoder({bytes.data(), bytes.size()});
    while (decoder.Next()) Fields(decoder, spec);
    return spec;
  } catch (const protozero::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("malformed ModelSpec: ", error.what()));
  }
}

}  // namespace quarry::wire
