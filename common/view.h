// The set of nodes that make up the cluster, and the digest by which two are compared.
#ifndef QUARRY_COMMON_VIEW_H_
#define QUARRY_COMMON_VIEW_H_

#include <string>
#include <vector>

namespace quarry {

// SHA-256 over the node names, sorted, each followed by a newline. 32 bytes.
std::string ViewDigest(std::vector<std::string> nodes);

}  // namespace quarry

#endif  // QUARRY_COMMON_VIEW_H_
