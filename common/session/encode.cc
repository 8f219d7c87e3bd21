// Structs to bytes.
#include <type_traits>

#include "common/session/fields.h"
#include "protozero/basic_pbf_writer.hpp"
#include "protozero/buffer_string.hpp"

namespace quarry::wire {
namespace {

using Tag = protozero::pbf_tag_type;

// Writes the fields of one message; leaves out what has the default value of proto3.
class Encoder {
 public:
  explicit Encoder(std::string* out) : out_(out), writer_(*out) {}

  template <Number T>
  void Field(Tag tag, T value) {
    if (value != T{}) writer_.add_uint64(tag, static_cast<uint64_t>(value));
  }
  template <Number T>
  void Field(Tag tag, const std::vector<T>& values) {
    writer_.add_packed_uint64(tag, values.begin(), values.end());
  }
  void Field(Tag tag, absl::string_view value) {
    if (!value.empty()) Present(tag, value);
  }
  void Field(Tag tag, const std::string& value) { Field(tag, absl::string_view(value)); }
  void Field(Tag tag, const std::vector<std::string>& values) {
    for (const std::string& value : values) Present(tag, value);
  }
  // Written even when all its fields are left out: its presence says something.
  template <Message T>
  void Field(Tag tag, const T& message) {
    const size_t before = out_->size();
    {
      Encoder body(this, tag);
      Fields(body, message);
    }
    if (out_->size() == before) Present(tag, {});
  }
  template <Message T>
  void Field(Tag tag, const std::vector<T>& messages) {
    for (const T& message : messages) Field(tag, message);
  }

 private:
  Encoder(Encoder* parent, Tag tag) : out_(parent->out_), writer_(parent->writer_, tag) {}

  void Present(Tag tag, absl::string_view value) { writer_.add_bytes(tag, value.data(), value.size()); }

  std::string* out_;
  protozero::basic_pbf_writer<std::string> writer_;
};

template <typename Envelope>
void AppendEnvelope(const Envelope& message, std::string* out) {
  const size_t prefix = out->size();
  out->append(sizeof(uint32_t), '\0');
  Encoder encoder(out);
  encoder.Field(1, message.request);
  const Tag tag = BodyTag(message.body.index());
  std::visit(
      [&encoder, tag](const auto& body) {
        if constexpr (!std::is_same_v<std::decay_t<decltype(body)>, std::monostate>) encoder.Field(tag, body);
      },
      message.body);
  const size_t bytes = out->size() - prefix - sizeof(uint32_t);
  for (size_t i = 0; i < sizeof(uint32_t); ++i) (*out)[prefix + i] = static_cast<char>(bytes >> (8 * i));
}

}  // namespace

void AppendFramed(const ClientMessage& message, std::string* out) { AppendEnvelope(message, out); }
void AppendFramed(const ServerMessage& message, std::string* out) { AppendEnvelope(message, out); }

void AppendSpec(const ModelSpec& spec, std::string* out) {
  Encoder encoder(out);
  Fields(encoder, spec);
}

}  // namespace quarry::wire
