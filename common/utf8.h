// Whether bytes are text as protobuf's `string` fields must be.
#ifndef QUARRY_COMMON_UTF8_H_
#define QUARRY_COMMON_UTF8_H_

#include "absl/strings/string_view.h"

namespace quarry {

// As RFC 3629 defines UTF-8: the shortest form of each character, up to U+10FFFF, without
// surrogates. A message with any other `string` cannot be read by a protobuf library.
bool IsUtf8(absl::string_view bytes);

}  // namespace quarry

#endif  // QUARRY_COMMON_UTF8_H_
