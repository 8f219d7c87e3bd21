#include "common/namespace_id.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "absl/strings/escaping.h"

namespace quarry {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;

const Value& Field(const Struct& object, const std::string& name) { return object.fields().at(name); }
std::string Text(const Struct& object, const std::string& name) { return Field(object, name).string_value(); }
uint64_t Number(const Struct& object, const std::string& name) {
  return static_cast<uint64_t>(Field(object, name).number_value());
}

GroupSpec ParseGroup(const Struct& group) {
  const std::map<std::string, GroupKind> kinds = {
      {"full", GroupKind::kFull}, {"window", GroupKind::kWindow}, {"state", GroupKind::kState}};
  GroupSpec spec;
  spec.kind = kinds.at(Text(group, "kind"));
  spec.tokens_per_block = static_cast<uint32_t>(Number(group, "tokens_per_block"));
  spec.window_tokens = static_cast<uint32_t>(Number(group, "window_tokens"));
  spec.shards = static_cast<uint32_t>(Number(group, "shards"));
  spec.shard_bytes = Number(group, "shard_bytes");
  spec.exact_bytes = Field(group, "exact_bytes").bool_value();
  return spec;
}

ModelSpec ParseSpec(const Struct& object) {
  ModelSpec spec;
  spec.engine = Text(object, "engine");
  spec.layout = Text(object, "layout");
  spec.model = Text(object, "model");
  spec.weights_revision = Text(object, "weights_revision");
  spec.adapter_digest = Text(object, "adapter_digest");
  spec.kv_dtype = Text(object, "kv_dtype");
  spec.quantization = Text(object, "quantization");
  spec.hash_scheme = Text(object, "hash_scheme");
  spec.hash_seed = Text(object, "hash_seed");
  spec.hash_bytes = static_cast<uint32_t>(Number(object, "hash_bytes"));
  spec.allow_short_hashes = Field(object, "allow_short_hashes").bool_value();
  spec.layers = static_cast<uint32_t>(Number(object, "layers"));
  for (const Value& group : Field(object, "groups").list_value().values()) {
    spec.groups.push_back(ParseGroup(group.struct_value()));
  }
  return spec;
}

TEST(NamespaceId, AgreesWithTheVectorsForOtherLanguages) {
  std::ifstream file(QUARRY_TEST_DATA "/namespace_ids.json");
  const std::string json((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  Struct document;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(json, &document).ok());
  std::set<std::string> ids;
  const auto& vectors = Field(document, "vectors").list_value().values();
  for (const Value& value : vectors) {
    const Struct& vector = value.struct_value();
    const ModelSpec spec = ParseSpec(Field(vector, "spec").struct_value());
    EXPECT_TRUE(Validate(spec).ok()) << Validate(spec);
    EXPECT_EQ(CanonicalForm(spec), Text(vector, "canonical_form"));
    const std::string id = NamespaceId(Text(vector, "tenant"), Text(vector, "name"), spec);
    EXPECT_EQ(id.size(), kNamespaceIdBytes);
    EXPECT_EQ(absl::BytesToHexString(id), Text(vector, "namespace_id"));
    EXPECT_EQ(SiblingName(Text(vector, "name"), spec), Text(vector, "sibling_name"));
    ids.insert(id);
  }
  EXPECT_GE(vectors.size(), 10);
  EXPECT_EQ(ids.size(), static_cast<size_t>(vectors.size()));
}

}  // namespace
}  // namespace quarry
