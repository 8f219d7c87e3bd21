#include "server/check_command.h"

#include <cinttypes>
#include <cstdio>

#include "server/ssd/check.h"

namespace quarry::server {

int RunCheck(const std::string& dir) {
  const absl::StatusOr<SsdCheckResult> checked = CheckSsdDir(dir, [](absl::string_view bad) {
    std::fprintf(stderr, "quarryd: %.*s\n", static_cast<int>(bad.size()), bad.data());
  });
  if (!checked.ok()) {
    std::fprintf(stderr, "quarryd: --check: %s\n", std::string(checked.status().message()).c_str());
    return 1;
  }
  std::printf("%s: %" PRIu64 " of %" PRIu64 " records good, %" PRIu64 " payload bytes in %" PRIu64 " extents, %" PRIu64
              " namespaces; %" PRIu64 " bad, %" PRIu64 " void, %" PRIu64 " entries unreadable\n",
              dir.c_str(), checked->good_records, checked->records, checked->payload_bytes, checked->extents,
              checked->namespaces, checked->bad_records, checked->void_records, checked->unreadable);
  return checked->good() ? 0 : 1;
}

}  // namespace quarry::server
