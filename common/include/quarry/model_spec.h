// What must agree before two engines may exchange KV blocks.
//
// Part of the public API; value types, not thread-safe by themselves.
#ifndef QUARRY_MODEL_SPEC_H_
#define QUARRY_MODEL_SPEC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "quarry/export.h"

namespace quarry {

inline constexpr uint32_t kMinHashBytes = 16;
inline constexpr uint32_t kMaxHashBytes = 64;
inline constexpr uint32_t kMaxGroups = 16;
inline constexpr uint32_t kMaxShards = 256;
inline constexpr uint32_t kMaxLayers = 4096;
inline constexpr uint32_t kMaxTokensPerBlock = 1u << 20;
inline constexpr uint64_t kMaxShardBytes = 64ull << 20;
inline constexpr size_t kMaxSpecStringBytes = 256;

// How the blocks of a group are needed to resume a prompt at some token.
enum class GroupKind : uint8_t {
  kFull = 1,    // every block from the start of the prompt
  kWindow = 2,  // the blocks that hold the last window_tokens tokens
  kState = 3,   // the one block that ends where the prompt is resumed
};

// One kind of KV in a model.
struct GroupSpec {
  GroupKind kind = GroupKind::kFull;
  uint32_t tokens_per_block = 16;
  uint32_t window_tokens = 0;  // kWindow only
  uint32_t shards = 1;
  uint64_t shard_bytes = 0;  // payload of one shard of one block
  bool exact_bytes = true;   // false: shard_bytes is the maximum

  friend bool operator==(const GroupSpec&, const GroupSpec&) = default;
};

// Fields as documented in proto/quarry/v1/types.proto.
struct ModelSpec {
  std::string engine;
  std::string layout;
  std::string model;
  std::string weights_revision;
  std::string adapter_digest;
  std::string kv_dtype;
  std::string quantization;
  std::string hash_scheme;
  std::string hash_seed;
  uint32_t hash_bytes = 32;
  bool allow_short_hashes = false;
  uint32_t layers = 0;
  std::vector<GroupSpec> groups;

  friend bool operator==(const ModelSpec&, const ModelSpec&) = default;
};

// OK, or InvalidArgument that names the first bad field and its bound.
QUARRY_EXPORT absl::Status Validate(const ModelSpec& spec);

// The canonical form: one line a field, `name:length:value\n`, where length is the number
// of bytes of value in decimal; numbers in decimal, booleans as 0 or 1. In this order:
//
//   quarry-model-spec:1:1
//   engine layout model weights_revision adapter_digest kv_dtype quantization
//   hash_scheme hash_seed hash_bytes allow_short_hashes layers groups (their count)
//   and for each group N = 0, 1, ..:
//   groups[N].kind (full|window|state) groups[N].tokens_per_block groups[N].window_tokens
//   groups[N].shards groups[N].shard_bytes groups[N].exact_bytes
//
// Two specs are the same when their canonical forms are. tests/data/namespace_ids.json
// holds vectors for implementations in other languages.
QUARRY_EXPORT std::string CanonicalForm(const ModelSpec& spec);

// Names of the fields in which the two differ, as in the canonical form, in its order.
QUARRY_EXPORT std::vector<std::string> DifferingFields(const ModelSpec& a, const ModelSpec& b);

}  // namespace quarry

#endif  // QUARRY_MODEL_SPEC_H_
