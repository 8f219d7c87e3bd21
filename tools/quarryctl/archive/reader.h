// Reads, and checks, what format.h describes.
#ifndef QUARRY_TOOLS_QUARRYCTL_ARCHIVE_READER_H_
#define QUARRY_TOOLS_QUARRYCTL_ARCHIVE_READER_H_

#include <istream>
#include <string>

#include "absl/status/statusor.h"
#include "tools/quarryctl/archive/format.h"

namespace quarry::ctl {

// Holds at most one record, of at most 64 MiB, and never more memory than a small multiple
// of what the file has: a length in it is believed as its bytes come. Not thread-safe.
//
// Errors are InvalidArgument and say what is wrong and where: no such file, a newer version,
// cut off, changed; DataLoss when reading itself fails.
class ArchiveReader {
 public:
  // Reads the beginning. `input` is at its start and outlives the reader.
  static absl::StatusOr<ArchiveReader> Open(std::istream* input);

  // Only name and spec are set.
  const v1::NamespaceInfo& info() const { return info_; }

  // The next record, checked. False: there is none, and the end, which is that of the file,
  // says the same as the records before it.
  absl::StatusOr<bool> Next(ShardRecord* record);

  // Of the records so far.
  const ArchiveTotals& totals() const { return totals_; }

 private:
  explicit ArchiveReader(std::istream* input) : input_(input) {}

  absl::Status ReadBegin();
  absl::Status ReadRecord(const std::string& head, ShardRecord* record);
  absl::Status ReadPayload(uint64_t bytes, ShardRecord* record);
  absl::Status ReadEnd(std::string begin);
  // Appends exactly so many bytes.
  absl::Status Read(uint64_t bytes, std::string* out);
  absl::Status Wrong(absl::string_view what) const;

  std::istream* input_;
  v1::NamespaceInfo info_;
  uint64_t offset_ = 0;
  uint64_t chain_ = 0;
  ArchiveTotals totals_;
};

// Reads all of it. OK: whoever reads it again finds every record as it was written.
absl::StatusOr<ArchiveTotals> VerifyArchive(std::istream* input);

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_ARCHIVE_READER_H_
