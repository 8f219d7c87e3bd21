#include "tools/quarryctl/archive/reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checksum.h"

namespace quarry::ctl {
namespace {

// Memory grows by so much at most before the bytes for it have come.
constexpr uint64_t kStepBytes = 1 << 20;

}  // namespace

absl::Status ArchiveReader::Wrong(absl::string_view what) const {
  const std::string where = totals_.records == 0 ? "" : absl::StrCat(", behind ", totals_.records, " shards");
  return absl::InvalidArgumentError(absl::StrCat(what, " (at byte ", offset_, where, ")"));
}

absl::Status ArchiveReader::Read(uint64_t bytes, std::string* out) {
  while (bytes > 0) {
    const uint64_t step = std::min(bytes, kStepBytes);
    const size_t before = out->size();
    out->resize(before + step);
    input_->read(out->data() + before, static_cast<std::streamsize>(step));
    const auto got = static_cast<uint64_t>(input_->gcount());
    offset_ += got;
    if (input_->bad()) return absl::DataLossError(absl::StrCat("cannot be read at byte ", offset_));
    if (got < step) return Wrong("cut off");
    bytes -= step;
  }
  return absl::OkStatus();
}

absl::StatusOr<ArchiveReader> ArchiveReader::Open(std::istream* input) {
  ArchiveReader reader(input);
  if (absl::Status status = reader.ReadBegin(); !status.ok()) return status;
  return reader;
}

absl::Status ArchiveReader::ReadBegin() {
  std::string begin;
  absl::Status status = Read(kArchiveMagicBytes, &begin);
  if (absl::IsDataLoss(status)) return status;
  if (!status.ok() || begin != kArchiveMagic) return Wrong("not a file that quarryctl export has written");
  if (status = Read(kArchivePrefaceBytes - kArchiveMagicBytes, &begin); !status.ok()) return status;
  const absl::string_view numbers = absl::string_view(begin).substr(kArchiveMagicBytes);
  if (const uint32_t version = ReadUint32(numbers); version > kArchiveVersion) {
    return Wrong(
        absl::StrCat("written by a newer quarryctl: format version ", version, ", this one reads ", kArchiveVersion));
  } else if (version != kArchiveVersion) {
    return Wrong(absl::StrCat("format version ", version, ", this quarryctl reads ", kArchiveVersion));
  }
  const uint32_t info_bytes = ReadUint32(numbers.substr(sizeof(uint32_t)));
  if (info_bytes > kMaxArchiveInfoBytes) {
    return Wrong(absl::StrCat("changed: a spec of ", info_bytes, " bytes, at most ", kMaxArchiveInfoBytes));
  }
  if (status = Read(info_bytes, &begin); !status.ok()) return status;
  std::string sum;
  if (status = Read(kSumBytes, &sum); !status.ok()) return status;
  chain_ = Sum(begin);
  if (ReadUint64(sum) != chain_) return Wrong("changed: the checksum of the spec does not hold");
  if (!info_.ParseFromString(begin.substr(kArchivePrefaceBytes))) return Wrong("the spec is no NamespaceInfo");
  if (status = CheckInfo(info_); !status.ok()) return Wrong(status.message());
  return absl::OkStatus();
}

absl::StatusOr<bool> ArchiveReader::Next(ShardRecord* record) {
  std::string head;
  if (absl::Status status = Read(kRecordHeadBytes, &head); !status.ok()) return status;
  switch (static_cast<RecordKind>(head[0])) {
    case RecordKind::kShard:
      if (absl::Status status = ReadRecord(head, record); !status.ok()) return status;
      return true;
    case RecordKind::kEnd:
      if (absl::Status status = ReadEnd(std::move(head)); !status.ok()) return status;
      return false;
  }
  return Wrong(absl::StrCat("changed: a record of kind ", static_cast<uint8_t>(head[0])));
}

absl::Status ArchiveReader::ReadRecord(const std::string& bytes, ShardRecord* record) {
  const RecordHead head = ReadHead(bytes);
  if (absl::Status status = CheckHead(head, info_.spec()); !status.ok()) {
    return Wrong(absl::StrCat("changed: ", status.message()));
  }
  const size_t sums_begin = kRecordHeadBytes + head.hash_bytes + head.parent_bytes;
  const size_t sums = ChunkCount(head.payload_bytes);
  std::string summed = bytes;
  if (absl::Status status = Read(sums_begin - kRecordHeadBytes + sums * kSumBytes, &summed); !status.ok())
    return status;
  std::string sum;
  if (absl::Status status = Read(kSumBytes, &sum); !status.ok()) return status;
  const uint64_t record_sum = Sum(summed);
  if (ReadUint64(sum) != record_sum) return Wrong("changed: the checksum of a record does not hold");
  record->group = head.group;
  record->shard = head.shard;
  record->depth = head.depth;
  record->hash = summed.substr(kRecordHeadBytes, head.hash_bytes);
  record->parent = summed.substr(kRecordHeadBytes + head.hash_bytes, head.parent_bytes);
  record->sums.clear();
  for (size_t i = 0; i < sums; ++i) {
    record->sums.push_back(ReadUint64(absl::string_view(summed).substr(sums_begin + i * kSumBytes)));
  }
  if (absl::Status status = ReadPayload(head.payload_bytes, record); !status.ok()) return status;
  chain_ = NextChain(chain_, record_sum);
  ++totals_.records;
  totals_.payload_bytes += head.payload_bytes;
  return absl::OkStatus();
}

absl::Status ArchiveReader::ReadPayload(uint64_t bytes, ShardRecord* record) {
  record->payload.clear();
  if (absl::Status status = Read(bytes, &record->payload); !status.ok()) return status;
  for (size_t i = 0; i < record->sums.size(); ++i) {
    if (Sum(absl::string_view(record->payload).substr(i * kChunkBytes, kChunkBytes)) != record->sums[i]) {
      return Wrong("changed: the checksum of a payload does not hold");
    }
  }
  return absl::OkStatus();
}

absl::Status ArchiveReader::ReadEnd(std::string end) {
  if (absl::Status status = Read(kArchiveEndBytes - kRecordHeadBytes, &end); !status.ok()) return status;
  std::string sum;
  if (absl::Status status = Read(kSumBytes, &sum); !status.ok()) return status;
  if (ReadUint64(sum) != Sum(end)) return Wrong("changed: the checksum of the end does not hold");
  const absl::string_view numbers = absl::string_view(end).substr(8);
  const ArchiveTotals told{ReadUint64(numbers), ReadUint64(numbers.substr(8))};
  if (told != totals_ || ReadUint64(numbers.substr(16)) != chain_) {
    return Wrong(absl::StrCat("changed: the end tells of ", told.records, " shards and other checksums"));
  }
  if (input_->peek() != std::istream::traits_type::eof()) return Wrong("changed: there is more behind the end");
  return absl::OkStatus();
}

absl::StatusOr<ArchiveTotals> VerifyArchive(std::istream* input) {
  absl::StatusOr<ArchiveReader> reader = ArchiveReader::Open(input);
  if (!reader.ok()) return reader.status();
  ShardRecord record;
  while (true) {
    const absl::StatusOr<bool> more = reader->Next(&record);
    if (!more.ok()) return more.status();
    if (!*more) return reader->totals();
  }
}

}  // namespace quarry::ctl
