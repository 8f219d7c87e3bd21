#include "common/namespace_id.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/sha256.h"

namespace quarry {
namespace {

std::string Line(absl::string_view name, absl::string_view value) {
  return absl::StrCat(name, ":", value.size(), ":", value, "\n");
}

}  // namespace

std::string NamespaceId(absl::string_view tenant, absl::string_view name, const ModelSpec& spec) {
  return Sha256(absl::StrCat(Line("tenant", tenant), Line("name", name), CanonicalForm(spec)));
}

std::string SiblingName(absl::string_view name, const ModelSpec& spec) {
  constexpr size_t kSuffixBytes = 4;
  return absl::StrCat(name, "~", absl::BytesToHexString(Sha256(CanonicalForm(spec)).substr(0, kSuffixBytes)));
}

}  // namespace quarry
