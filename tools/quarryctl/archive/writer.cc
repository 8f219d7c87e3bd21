#include "tools/quarryctl/archive/writer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checksum.h"

namespace quarry::ctl {

absl::StatusOr<ArchiveWriter> ArchiveWriter::Create(const v1::NamespaceInfo& info, Sink sink) {
  if (absl::Status status = CheckInfo(info); !status.ok()) return status;
  v1::NamespaceInfo kept;
  kept.set_name(info.name());
  *kept.mutable_spec() = info.spec();
  const std::string message = kept.SerializeAsString();
  // Protobuf writes strings that it does not read.
  if (!v1::NamespaceInfo().ParseFromString(message)) {
    return absl::InvalidArgumentError("name or spec: a string in it is not UTF-8, which a file cannot hold");
  }
  if (message.size() > kMaxArchiveInfoBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("spec: ", message.size(), " bytes, a file takes at most ", kMaxArchiveInfoBytes));
  }
  std::string begin = kArchiveMagic;
  AppendUint32(kArchiveVersion, &begin);
  AppendUint32(static_cast<uint32_t>(message.size()), &begin);
  begin += message;
  ArchiveWriter writer(info.spec(), std::move(sink));
  writer.chain_ = Sum(begin);
  AppendUint64(writer.chain_, &begin);
  if (absl::Status status = writer.sink_(begin); !status.ok()) return status;
  return writer;
}

absl::Status ArchiveWriter::Append(const ShardRecord& record) {
  const RecordHead head{record.group,       record.shard,         record.depth,
                        record.hash.size(), record.parent.size(), record.payload.size()};
  if (absl::Status status = CheckHead(head, spec_); !status.ok()) return status;
  std::string bytes;
  AppendHead(head, &bytes);
  bytes += record.hash;
  bytes += record.parent;
  const absl::string_view payload = record.payload;
  for (size_t at = 0; at < payload.size(); at += kChunkBytes)
    AppendUint64(Sum(payload.substr(at, kChunkBytes)), &bytes);
  const uint64_t sum = Sum(bytes);
  AppendUint64(sum, &bytes);
  if (absl::Status status = sink_(bytes); !status.ok()) return status;
  if (absl::Status status = sink_(payload); !status.ok()) return status;
  chain_ = NextChain(chain_, sum);
  ++totals_.records;
  totals_.payload_bytes += payload.size();
  return absl::OkStatus();
}

absl::Status ArchiveWriter::Finish() {
  std::string end(8, '\0');
  end[0] = static_cast<char>(RecordKind::kEnd);
  AppendUint64(totals_.records, &end);
  AppendUint64(totals_.payload_bytes, &end);
  AppendUint64(chain_, &end);
  AppendUint64(Sum(end), &end);
  return sink_(end);
}

}  // namespace quarry::ctl
