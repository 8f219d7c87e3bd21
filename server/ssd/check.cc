#include "server/ssd/check.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/namespace_id.h"
#include "common/net/socket.h"
#include "server/ssd/aligned_buffer.h"
#include "server/ssd/catalog.h"
#include "server/ssd/extent_files.h"
#include "server/ssd/record_header.h"

namespace quarry::server {
namespace {

// One directory's check.
class Checker {
 public:
  Checker(std::string dir, const Catalog* catalog, const std::function<void(absl::string_view)>& on_bad)
      : dir_(std::move(dir)), catalog_(catalog), on_bad_(on_bad) {}

  absl::StatusOr<SsdCheckResult> Run() {
    absl::Status status = catalog_->ForEachNamespace(
        [&](const CatalogNamespace& ns) { ids_[ns.number] = NamespaceId(ns.tenant, ns.name, ns.spec); },
        &result_.unreadable);
    if (!status.ok()) return status;
    status = catalog_->ForEachExtent(
        [&](const CatalogExtent& extent) { generations_[extent.number] = extent.generation; }, &result_.unreadable);
    if (!status.ok()) return status;
    result_.namespaces = ids_.size();
    result_.extents = generations_.size();
    status = catalog_->ForEachRecord([&](const CatalogRecord& record) { Check(record); }, &result_.unreadable);
    if (!status.ok()) return status;
    return result_;
  }

 private:
  void Check(const CatalogRecord& record) {
    ++result_.records;
    const auto id = ids_.find(record.ns);
    if (id == ids_.end()) {
      ++result_.void_records;
      return;
    }
    const std::string why = WhyBad(record, id->second);
    if (why.empty()) {
      ++result_.good_records;
      result_.payload_bytes += record.payload_bytes;
      return;
    }
    ++result_.bad_records;
    on_bad_(absl::StrCat("extent ", record.extent, " page ", record.page, ", block ",
                         absl::BytesToHexString(record.hash), " shard ", record.shard, ": ", why));
  }

  // Empty: it holds.
  std::string WhyBad(const CatalogRecord& record, const std::string& namespace_id) {
    const auto generation = generations_.find(record.extent);
    if (generation == generations_.end()) return "its extent is not in the catalog";
    const uint64_t header_bytes = RecordHeaderBytes(record.payload_bytes);
    const uint64_t bytes = RecordBytes(record.payload_bytes);
    if (buffer_.size() < bytes) buffer_ = AlignedBuffer(bytes);
    if (std::string why = record.inlined ? ReadInlined(record) : ReadExtent(record, bytes); !why.empty()) return why;
    RecordHeader expected;
    expected.identity = {namespace_id, record.group, record.shard, record.hash};
    expected.generation = generation->second;
    expected.payload_bytes = record.payload_bytes;
    uint64_t root;
    absl::Span<const uint64_t> sums;
    const absl::Span<const std::byte> header(buffer_.data(), header_bytes);
    switch (DecodeRecordHeader(header, expected, &root, &sums)) {
      case RecordCheck::kTorn:
        return "its header's sum does not hold";
      case RecordCheck::kForeign:
        return "another block, or an earlier one, lies there";
      case RecordCheck::kGood:
        break;
    }
    if (root != record.root) return "its header is not the one that was committed";
    if (!RecordHolds(header, buffer_.data() + header_bytes, expected, &root, &sums))
      return "its payload's sums do not hold";
    return "";
  }

  std::string ReadInlined(const CatalogRecord& record) {
    const absl::StatusOr<std::string> stored = catalog_->ReadPayload(record.extent, record.page);
    if (!stored.ok()) return std::string(stored.status().message());
    if (stored->size() != RecordHeaderBytes(record.payload_bytes) + record.payload_bytes)
      return "it has another length";
    std::memcpy(buffer_.data(), stored->data(), stored->size());
    return "";
  }

  std::string ReadExtent(const CatalogRecord& record, uint64_t bytes) {
    if (open_extent_ != record.extent || !fd_) {
      const std::string path = ExtentPath(dir_ + "/extents", record.extent);
      fd_ = UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
      if (!fd_) return absl::StrCat(path, ": ", std::strerror(errno));
      open_extent_ = record.extent;
    }
    for (uint64_t done = 0; done < bytes;) {
      const ssize_t got =
          pread(fd_.get(), buffer_.data() + done, bytes - done, static_cast<off_t>(record.page * kPageBytes + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return std::strerror(errno);
      if (got == 0) return "its extent ends before it does";
      done += static_cast<uint64_t>(got);
    }
    return "";
  }

  const std::string dir_;
  const Catalog* const catalog_;
  const std::function<void(absl::string_view)>& on_bad_;
  SsdCheckResult result_;
  std::map<uint32_t, std::string> ids_;  // of namespaces, by their number
  std::map<uint32_t, uint64_t> generations_;
  AlignedBuffer buffer_;
  UniqueFd fd_;  // of open_extent_
  uint32_t open_extent_ = 0;
};

}  // namespace

absl::StatusOr<SsdCheckResult> CheckSsdDir(const std::string& dir,
                                           const std::function<void(absl::string_view)>& on_bad) {
  CatalogOptions options;
  options.read_only = true;
  const absl::StatusOr<std::unique_ptr<Catalog>> catalog = Catalog::Open(dir + "/catalog", options);
  if (!catalog.ok()) return catalog.status();
  return Checker(dir, catalog->get(), on_bad).Run();
}

}  // namespace quarry::server
