#include "server/ssd/catalog_status.h"

#include "absl/strings/str_cat.h"

namespace quarry::server {
namespace {

absl::StatusCode CodeOf(const rocksdb::Status& status) {
  if (status.IsNotFound() || status.IsPathNotFound()) return absl::StatusCode::kNotFound;
  if (status.IsCorruption()) return absl::StatusCode::kDataLoss;
  if (status.IsNoSpace() || status.IsMemoryLimit()) return absl::StatusCode::kResourceExhausted;
  if (status.IsBusy()) return absl::StatusCode::kUnavailable;
  return absl::StatusCode::kInternal;
}

}  // namespace

absl::Status ToStatus(const rocksdb::Status& status, absl::string_view where) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(CodeOf(status), absl::StrCat(where, ": ", status.ToString()));
}

}  // namespace quarry::server
