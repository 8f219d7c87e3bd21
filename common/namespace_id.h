// The identity of a namespace: what every node derives alone.
#ifndef QUARRY_COMMON_NAMESPACE_ID_H_
#define QUARRY_COMMON_NAMESPACE_ID_H_

#include <string>

#include "absl/strings/string_view.h"
#include "quarry/model_spec.h"

namespace quarry {

inline constexpr size_t kNamespaceIdBytes = 32;

// SHA-256 of `tenant:length:value\n` `name:length:value\n` and CanonicalForm(spec).
std::string NamespaceId(absl::string_view tenant, absl::string_view name, const ModelSpec& spec);

// The name of the sibling that is opened when `name` is taken by another spec: name + "~"
// + the first 8 hex digits of SHA-256 over CanonicalForm(spec).
std::string SiblingName(absl::string_view name, const ModelSpec& spec);

}  // namespace quarry

#endif  // QUARRY_COMMON_NAMESPACE_ID_H_
