#include "common/random.h"

#include <errno.h>
#include <sys/random.h>

#include <cstdio>
#include <cstdlib>

namespace quarry {

std::string SecureRandomBytes(size_t bytes) {
  std::string result(bytes, '\0');
  size_t filled = 0;
  while (filled < bytes) {
    const ssize_t got = getrandom(&result[filled], bytes - filled, 0);
    if (got > 0) {
      filled += static_cast<size_t>(got);
    } else if (errno != EINTR) {
      std::perror("quarry: no random bytes from the kernel");
      std::abort();
    }
  }
  return result;
}

}  // namespace quarry
