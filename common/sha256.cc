#include "common/sha256.h"

#include <openssl/evp.h>

#include <cstdio>
#include <cstdlib>

namespace quarry {

std::string Sha256(absl::string_view bytes) {
  std::string digest(32, '\0');
  if (EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(&digest[0]), nullptr, EVP_sha256(),
                 nullptr) != 1) {
    std::fputs("quarry: SHA-256 is not available\n", stderr);
    std::abort();
  }
  return digest;
}

}  // namespace quarry
