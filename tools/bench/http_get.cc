#include "tools/bench/http_get.h"

#include <fcntl.h>
#include <sys/socket.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/net/socket.h"

namespace quarry::bench {
namespace {
constexpr int64_t kTimeoutNs = 10'000'000'000;
}

absl::StatusOr<std::string> HttpGet(const std::string& address, const std::string& path) {
  const int64_t deadline_ns = Clock::Real()->NowNs() + kTimeoutNs;
  auto fd = Dial(address, deadline_ns);
  if (!fd.ok()) return fd.status();
  const std::string request =
      absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: ", address, "\r\nConnection: close\r\n\r\n");
  if (absl::Status status = WriteAll(fd->get(), request, deadline_ns); !status.ok()) return status;
  fcntl(fd->get(), F_SETFL, 0);  // blocking: the server ends the connection
  std::string answer;
  char part[64 << 10];
  ssize_t got;
  while ((got = recv(fd->get(), part, sizeof part, 0)) > 0) answer.append(part, static_cast<size_t>(got));
  const size_t head = answer.find("\r\n\r\n");
  if (got == 0 && head != std::string::npos && absl::StartsWith(answer, "HTTP/1.1 200 "))
    return answer.substr(head + 4);
  return absl::UnavailableError(absl::StrCat(path, " of ", address, " was not answered well"));
}

}  // namespace quarry::bench
