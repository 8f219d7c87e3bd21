#ifndef QUARRY_COMMON_SHA256_H_
#define QUARRY_COMMON_SHA256_H_

#include <string>

#include "absl/strings/string_view.h"

namespace quarry {

// 32 bytes. Aborts where OpenSSL has no SHA-256: a wrong identity would serve the wrong
// model's blocks.
std::string Sha256(absl::string_view bytes);

}  // namespace quarry

#endif  // QUARRY_COMMON_SHA256_H_
