// The files of quarryctl export, from arbitrary bytes. No fuzzer guesses a checksum, so the
// input is read twice: as a file; and as what to put into one whose checksums hold, which
// must be read as it was written, and not at all once a byte of it was changed.
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "tests/fuzz/input.h"
#include "tools/quarryctl/archive/reader.h"
#include "tools/quarryctl/archive/writer.h"

namespace quarry::ctl {
namespace {

using fuzz::Input;
using fuzz::Require;

absl::StatusOr<ArchiveTotals> Verify(const std::string& file) {
  std::istringstream input(file);
  return VerifyArchive(&input);
}

v1::NamespaceInfo TakeInfo(Input* input) {
  v1::NamespaceInfo info;
  info.set_name("n" + input->TakeBytes(input->Take<uint8_t>() % 8));
  v1::ModelSpec* spec = info.mutable_spec();
  spec->set_hash_bytes(input->Take<uint8_t>() % 66);
  for (int groups = input->Take<uint8_t>() % 3; groups >= 0; --groups) {
    v1::GroupSpec* group = spec->add_groups();
    group->set_shards(input->Take<uint16_t>() % 258);
    group->set_shard_bytes(input->Take<uint32_t>());
    group->set_exact_bytes(input->Take<uint8_t>() % 2 == 1);
  }
  return info;
}

// What of it the spec allows.
void CheckRoundTrip(Input input) {
  const uint32_t change_at = input.Take<uint32_t>();
  const v1::NamespaceInfo info = TakeInfo(&input);
  std::string file;
  auto writer = ArchiveWriter::Create(info, [&](absl::string_view bytes) {
    file.append(bytes.data(), bytes.size());
    return absl::OkStatus();
  });
  if (!writer.ok()) return;
  const size_t hash_bytes = info.spec().hash_bytes();
  std::vector<ShardRecord> written;
  while (!input.empty()) {
    ShardRecord record;
    record.group = input.Take<uint8_t>() % 4;
    record.shard = input.Take<uint8_t>();
    record.depth = input.Take<uint64_t>();
    record.hash = input.TakeBytes(hash_bytes);
    if (input.Take<uint8_t>() % 2 == 1) record.parent = input.TakeBytes(hash_bytes);
    record.payload = input.TakeBytes(input.Take<uint16_t>());
    if (writer->Append(record).ok()) written.push_back(std::move(record));
  }
  Require(writer->Finish().ok());

  std::istringstream stream(file);
  auto reader = ArchiveReader::Open(&stream);
  Require(reader.ok());
  ShardRecord read;
  for (const ShardRecord& record : written) {
    const auto more = reader->Next(&read);
    Require(more.ok() && *more);
    Require(std::tie(read.group, read.shard, read.depth, read.hash, read.parent, read.payload) ==
            std::tie(record.group, record.shard, record.depth, record.hash, record.parent, record.payload));
  }
  const auto end = reader->Next(&read);
  Require(end.ok() && !*end);

  const size_t at = change_at % file.size();
  file[at] = static_cast<char>(file[at] ^ (1 << (change_at >> 29)));
  Require(!Verify(file).ok());
  Require(!Verify(file.substr(0, at)).ok());
}

// Records with right checksums and heads as the input has them.
void ReadSealed(Input input) {
  const v1::NamespaceInfo info = TakeInfo(&input);
  std::string file;
  auto writer = ArchiveWriter::Create(info, [&](absl::string_view bytes) {
    file.append(bytes.data(), bytes.size());
    return absl::OkStatus();
  });
  if (!writer.ok()) return;
  while (!input.empty()) {
    std::string record = input.TakeBytes(input.Take<uint16_t>() % 512);
    AppendUint64(Sum(record), &record);
    file += record;
    file += input.TakeBytes(input.Take<uint16_t>());
  }
  static_cast<void>(Verify(file).ok());
}

}  // namespace
}  // namespace quarry::ctl

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const auto totals = quarry::ctl::Verify(bytes);
  if (totals.ok()) quarry::ctl::Require(totals->payload_bytes < size);
  quarry::ctl::CheckRoundTrip({data, size});
  quarry::ctl::ReadSealed({data, size});
  return 0;
}
