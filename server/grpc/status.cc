#include "server/grpc/status.h"

#include <algorithm>
#include <protozero/pbf_writer.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace quarry::server {
namespace {

// Written by hand: Debian has no package of google.rpc's messages for C++.
using protozero::pbf_writer;

struct FieldMessage {
  absl::string_view field;  // empty: the message names none
  absl::string_view description;
};

bool IsFieldCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '[' || c == ']';
}

FieldMessage Split(absl::string_view message) {
  const size_t colon = message.find(": ");
  if (colon == 0 || colon == absl::string_view::npos) return {{}, message};
  const absl::string_view field = message.substr(0, colon);
  if (!std::all_of(field.begin(), field.end(), IsFieldCharacter)) return {{}, message};
  return {field, message.substr(colon + 2)};
}

void Add(pbf_writer& writer, protozero::pbf_tag_type tag, absl::string_view text) {
  writer.add_string(tag, text.data(), text.size());
}

// A message whose field 1 repeats a violation; `fill` writes one.
template <typename Fill>
std::string Violation(Fill&& fill) {
  std::string bytes;
  pbf_writer outer(bytes);
  pbf_writer violation(outer, 1);
  fill(violation);
  return bytes;
}

struct Detail {
  absl::string_view type;  // empty: none
  std::string bytes;
};

Detail DetailOf(const absl::Status& status, const std::vector<std::string>& subjects) {
  const std::string text(status.message());
  const FieldMessage parts = Split(text);
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return {"google.rpc.BadRequest", Violation([&](pbf_writer& violation) {
                Add(violation, 1, parts.field);
                Add(violation, 2, parts.description);
              })};
    case absl::StatusCode::kFailedPrecondition: {
      std::string bytes;
      for (const std::string& subject : subjects) {
        bytes += Violation([&](pbf_writer& violation) {
          Add(violation, 1, "MODEL_SPEC");
          Add(violation, 2, subject);
          Add(violation, 3, parts.description);
        });
      }
      return {"google.rpc.PreconditionFailure", std::move(bytes)};
    }
    case absl::StatusCode::kNotFound: {
      std::string bytes;
      pbf_writer info(bytes);
      Add(info, 1, parts.field);
      Add(info, 4, parts.description);
      return {"google.rpc.ResourceInfo", std::move(bytes)};
    }
    case absl::StatusCode::kResourceExhausted:
      return {"google.rpc.QuotaFailure", Violation([&](pbf_writer& violation) {
                Add(violation, 1, parts.field);
                Add(violation, 2, parts.description);
              })};
    default:
      return {};
  }
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status, const std::vector<std::string>& subjects) {
  if (status.ok()) return grpc::Status::OK;
  const std::string text(status.message());
  std::string rpc_status;  // google.rpc.Status
  pbf_writer writer(rpc_status);
  writer.add_int32(1, static_cast<int32_t>(status.code()));
  Add(writer, 2, text);
  if (const Detail detail = DetailOf(status, subjects); !detail.type.empty()) {
    pbf_writer any(writer, 3);
    Add(any, 1, absl::StrCat("type.googleapis.com/", detail.type));
    Add(any, 2, detail.bytes);
  }
  return {static_cast<grpc::StatusCode>(status.code()), text, rpc_status};
}

grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const absl::Status& status,
                                 const std::vector<std::string>& subjects) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status, subjects));
  return reactor;
}

}  // namespace quarry::server
