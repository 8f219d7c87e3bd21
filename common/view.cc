#include "common/view.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/sha256.h"

namespace quarry {

std::string ViewDigest(std::vector<std::string> nodes) {
  std::sort(nodes.begin(), nodes.end());
  std::string all;
  for (const std::string& node : nodes) absl::StrAppend(&all, node, "\n");
  return Sha256(all);
}

}  // namespace quarry
