// Writes what format.h describes.
#ifndef QUARRY_TOOLS_QUARRYCTL_ARCHIVE_WRITER_H_
#define QUARRY_TOOLS_QUARRYCTL_ARCHIVE_WRITER_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "tools/quarryctl/archive/format.h"

namespace quarry::ctl {

// Holds one record's head at a time. Not thread-safe.
class ArchiveWriter {
 public:
  // Takes the file's bytes in order; an error of it ends the call that met it.
  using Sink = std::function<absl::Status(absl::string_view)>;

  // Writes the beginning; of `info` only name and spec. InvalidArgument: see CheckInfo.
  static absl::StatusOr<ArchiveWriter> Create(const v1::NamespaceInfo& info, Sink sink);

  // InvalidArgument: the spec has no such shard. `sums` are not looked at.
  absl::Status Append(const ShardRecord& record);
  // Writes the end. Nothing is called after it.
  absl::Status Finish();

  const ArchiveTotals& totals() const { return totals_; }

 private:
  ArchiveWriter(v1::ModelSpec spec, Sink sink) : spec_(std::move(spec)), sink_(std::move(sink)) {}

  v1::ModelSpec spec_;
  Sink sink_;
  uint64_t chain_ = 0;
  ArchiveTotals totals_;
};

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_ARCHIVE_WRITER_H_
